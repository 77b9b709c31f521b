"""The files of the images, judged; what is built of them is tested by ``make test-image``."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dockerfile import DOCKER

yaml = pytest.importorskip("yaml", reason="extra dev")
pytest.importorskip("fastapi", reason="extra server")

#: The user of the images.
USER = 10001
ROOT = DOCKER.parent
DOCKERFILES = ["Dockerfile", "Dockerfile.gpu"]
COMPOSE = ["compose.yaml", "compose.cluster.yaml"]
SCRIPTS = sorted(DOCKER.rglob("*.sh"))


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} has no wheel for this platform")
    return found


# --- the files ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOCKERFILES)
def test_hadolint_has_nothing_to_say(name):
    done = subprocess.run(
        [tool("hadolint"), "--no-color", DOCKER / name],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_shellcheck_has_nothing_to_say():
    assert len(SCRIPTS) >= 4
    done = subprocess.run(
        [tool("shellcheck"), *SCRIPTS], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout
    for script in SCRIPTS:
        assert os.access(script, os.X_OK), script
        assert script.read_text().startswith("#!/bin/sh\n"), script
        assert "\nset -eu\n" in script.read_text(), script


@pytest.mark.parametrize("cuda", ["12", "13"])
def test_gpu_extras_exist(cuda):
    extras = subprocess.run(
        [DOCKER / "steps" / "gpu_extras.sh", cuda], capture_output=True, text=True, timeout=200, check=True
    ).stdout.strip()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in extras.split(","):
        assert extra in project["optional-dependencies"]
    (cupy,) = project["optional-dependencies"][f"gpu{cuda}"]
    assert cupy.startswith(f"cupy-cuda{cuda}x[ctk]")


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_files_keep_to_the_specification(name):
    compose_spec = pytest.importorskip("compose_spec", reason="no wheel for this platform")
    options = compose_spec.PyOptions()
    options.apply_merge = True
    found = options.from_yaml((DOCKER / name).read_text())
    found.validate()
    assert "service" in found.service_names()


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_services_are_locked_down(name):
    found = yaml.safe_load((DOCKER / name).read_text())
    documented = environment_documented()
    for service in found["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "/tmp" in service["tmpfs"]
        seconds = int(service["stop_grace_period"].removesuffix("s"))
        assert seconds > 30  # BIGSAP_DRAIN_S
        assert service["command"][0] in ("serve", "scheduler", "worker")
        assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        assert set(service.get("environment") or {}) <= documented
        for port in service.get("ports") or []:
            assert port.startswith("127.0.0.1:")
        for volume in service["volumes"]:
            name_of, target = volume.removesuffix(":ro").split(":")
            assert name_of in found["volumes"]
            assert target in ("/data", "/stores", "/var/cache/bigsap")
        for secret in service.get("secrets") or []:
            assert secret in found["secrets"]


def test_cluster_shares_data_and_hides_the_scheduler():
    found = yaml.safe_load((DOCKER / "compose.cluster.yaml").read_text())
    services = found["services"]
    assert found["networks"]["cluster"]["internal"] is True
    assert services["scheduler"]["networks"] == ["cluster"]
    # Workers fetch what jobs name (providers, zarr addresses); nobody reaches a scheduler there.
    assert services["worker"]["networks"] == ["cluster", "outside"]
    assert not (found["networks"]["outside"] or {}).get("internal")
    assert "outside" not in services["service"]["networks"]
    readme = (DOCKER / "README.md").read_text()
    assert re.search(r"`BIGSAP_STORES` must be\s+mounted in every worker", readme)
    assert "ports" not in services["scheduler"]
    addresses = {services[n]["environment"]["BIGSAP_SCHEDULER"] for n in ("service", "worker")}
    assert addresses == {"tcp://scheduler:8786"}
    assert "data:/data" in services["service"]["volumes"]
    assert "data:/data" in services["worker"]["volumes"]
    assert services["worker"]["deploy"]["replicas"] >= 2
    # What a spread job reads is in the same place for all, and workers change nothing there.
    assert "stores:/stores" in services["service"]["volumes"]
    assert "stores:/stores:ro" in services["worker"]["volumes"]
    stores = {services[n]["environment"]["BIGSAP_STORES"] for n in ("service", "worker")}
    assert [json.loads(text) for text in stores] == [{"shared": "/stores"}]


# --- documentation ------------------------------------------------------------------------


def environment_documented() -> set[str]:
    pages = DOCKER / "README.md", ROOT / "docs" / "operator.md"
    text = "\n".join(page.read_text() for page in pages)
    return set(re.findall(r"^\| `([A-Z][A-Z_]+)` \|", text, re.M))


def test_every_variable_is_documented_and_every_documented_one_exists():
    from bigsap_server.settings import Limits, Settings

    settings = {f"BIGSAP_{name.upper()}" for name in Settings.model_fields} - {"BIGSAP_LIMITS"}
    settings |= {f"BIGSAP_LIMITS__{name.upper()}" for name in Limits.model_fields}
    files = [*(ROOT / "bigsap").rglob("*.py"), *(ROOT / "server").rglob("*.py")]
    files += [p for p in DOCKER.rglob("*") if p.is_file() and p.suffix != ".md"]
    named = {
        variable
        for file in files
        if "__pycache__" not in file.parts
        for variable in re.findall(r"\bBIGSAP_[A-Z][A-Z_]*[A-Z]\b", file.read_text())
    }
    assert "BIGSAP_SCHEDULER" in named
    documented = environment_documented()
    assert settings - documented == set()
    assert named - documented == set()
    own = {name for name in documented if name.startswith("BIGSAP_")}
    assert own - settings - named == set(), "documented, but nothing reads it"


def test_kubernetes_example_is_consistent():
    text = (DOCKER / "README.md").read_text()
    manifests = (DOCKER.parent / "deploy" / "kubernetes.yaml").read_text()
    documents = {doc["kind"]: doc for doc in yaml.safe_load_all(manifests)}
    assert set(documents) == {"Secret", "PersistentVolumeClaim", "Deployment", "Service"}
    spec = documents["Deployment"]["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"]["type"] == "Recreate"
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == USER
    assert pod["terminationGracePeriodSeconds"] > 30
    # For a Service named bigsap, Kubernetes would set BIGSAP_PORT=tcp://... in the pods.
    links = {f"{documents['Service']['metadata']['name'].upper()}_PORT", "BIGSAP_SCHEDULER_PORT"}
    assert links <= environment_documented()
    assert pod["enableServiceLinks"] is False
    others = text[text.index("For workers on other nodes") :]
    assert "`enableServiceLinks: false`" in others
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert {v["name"] for v in container["env"]} <= environment_documented()
    assert documents["Service"]["spec"]["selector"] == spec["selector"]["matchLabels"]
    from bigsap_server.auth import Key

    for table in tomllib.loads(documents["Secret"]["stringData"]["keys.toml"]).values():
        Key(**table)


def test_the_health_check_asks_the_port_of_the_arguments(tmp_path):
    """They win over BIGSAP_PORT, for the service and hence for its health check."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "bigsap"
    program.write_text("#!/bin/sh\n")  # the service below stands for it
    program.chmod(0o755)
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = {
            "BIGSAP_VENV": str(tmp_path),
            "BIGSAP_CACHE": str(tmp_path),
            "BIGSAP_PORT": "1",
            "BIGSAP_ROLE_FILE": str(tmp_path / "role"),
            "PATH": os.environ["PATH"],
        }
        arguments = [word.format(server.server_port) for word in ("--port", "1", "--port={}")]
        check = [sys.executable, DOCKER / "health.py"]
        for words, code in ((arguments, 0), ([], 1)):
            command = [DOCKER / "entrypoint.sh", "serve", *words]
            subprocess.run(command, env=env, timeout=200, check=True)
            assert subprocess.run(check, env=env, timeout=200, check=False).returncode == code
        server.shutdown()


class Healthy(BaseHTTPRequestHandler):
    """A service that is well."""

    def do_GET(self):
        assert self.path == "/healthz"
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        """Nothing."""
