"""The images without a Docker engine: their files judged, their steps and roles run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap
from contracts import read
from dockerfile import DOCKER, instructions, values, variables
from gate import HANG_S, apart, until
from image import ROOT, USER, Image
from live_server import free_port
from remote_provider import Provider

yaml = pytest.importorskip("yaml", reason="extra dev")
pytest.importorskip("fastapi", reason="extra server")

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


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dockerfile_keeps_the_rules(name):
    bases = values(name, "FROM")
    assert len(bases) == 2  # what builds is not what runs
    for base in bases:
        assert re.match(r"python:\$\{PYTHON\}-slim-\w+( AS build)?$", base)
    assert re.fullmatch(r"PYTHON=3\.\d+", values(name, "ARG")[0])
    kinds = [kind for kind, _ in instructions(name)]
    assert "ADD" not in kinds
    last = kinds[::-1].index("FROM")
    final = instructions(name)[-last:]
    user = [arguments for kind, arguments in final if kind == "USER"]
    assert user == [f"{USER}:{USER}"]
    after = [kind for kind, _ in final][[kind for kind, _ in final].index("USER") :]
    assert not {"RUN", "COPY"} & set(after)
    for kind in ("ENTRYPOINT", "CMD"):
        assert len([1 for found, _ in final if found == kind]) == 1
        assert isinstance(json.loads(values(name, kind)[0]), list)
    assert "CMD [" in values(name, "HEALTHCHECK")[0]
    assert values(name, "STOPSIGNAL") == ["SIGTERM"]
    assert values(name, "WORKDIR") == ["/data"]
    env = dict(pair for arguments in values(name, "ENV") for pair in variables(arguments))
    volumes = json.loads(values(name, "VOLUME")[0])
    for variable in ("BIGSAP_DATA", "NUMBA_CACHE_DIR"):  # what is written outlives a container
        assert any(f"{env[variable]}/".startswith(f"{volume}/") for volume in volumes), variable
    assert env["BIGSAP_PORT"] == values(name, "EXPOSE")[0]
    assert env["BIGSAP_HOST"] == "0.0.0.0"


@pytest.mark.parametrize("name", DOCKERFILES)
def test_every_step_is_a_script_that_tests_run(name):
    """The steps of the CPU image run below (`Image.build`), and `gpu_extras.sh` by itself."""
    run = " ".join(values("Dockerfile", "RUN")) + Path(__file__).read_text()
    for step in values(name, "RUN"):
        command = json.loads(step)
        text = command[2] if command[:2] == ["/bin/sh", "-c"] else shlex.join(command)
        scripts = re.findall(r"/steps/([\w.]+)", text)
        assert scripts, f"{step} runs no script"
        for script in scripts:
            assert (DOCKER / "steps" / script).is_file()
            assert f'{script}"' in run
    for arguments in values(name, "COPY"):
        *sources, _ = [part for part in arguments.split() if not part.startswith("--")]
        for source in sources:
            if not arguments.startswith("--from"):
                assert (ROOT / source).exists(), source


def test_ignore_files_let_through_what_is_copied():
    first, second = ((DOCKER / f"{name}.dockerignore").read_text() for name in DOCKERFILES)
    assert first == second
    allowed = {line[1:] for line in first.splitlines() if line.startswith("!")}
    for arguments in (a for name in DOCKERFILES for a in values(name, "COPY")):
        for source in arguments.split()[:-1]:
            if not arguments.startswith("--from"):
                assert source.split("/")[0] in allowed


def test_gpu_image_differs_only_in_what_concerns_gpus():
    cpu, gpu = (instructions(name) for name in DOCKERFILES)
    extra = [step for step in gpu if step not in cpu]
    assert {kind for kind, _ in extra} <= {"ARG", "RUN", "ENV", "LABEL"}
    missing = [step for step in cpu if step not in gpu]
    assert {kind for kind, _ in missing} <= {"RUN", "ENV", "LABEL"}
    assert ("ARG", "CUDA=13") in extra


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


def test_other_cuda_versions_are_refused():
    for bad in ("11", "", "13 evil"):
        done = subprocess.run(
            [DOCKER / "steps" / "gpu_extras.sh", bad],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 1
        assert "CUDA must be 12 or 13" in done.stderr


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
    return set(re.findall(r"^\| `(\w+)` \|", (DOCKER / "README.md").read_text(), re.M))


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


def test_defaults_are_documented_as_they_are():
    from bigsap_server.settings import Limits, Settings

    text = (DOCKER / "README.md").read_text()
    fields = [(f"BIGSAP_{n.upper()}", f) for n, f in Settings.model_fields.items()]
    fields += [(f"BIGSAP_LIMITS__{n.upper()}", f) for n, f in Limits.model_fields.items()]
    checked = 0
    for name, field in fields:
        row = re.search(rf"^\| `{name}` \| (.*?) \|", text, re.M)
        if row and isinstance(field.default, (int, float)) and not isinstance(field.default, bool):
            shown = row.group(1).strip("`")
            number = re.fullmatch(r"(\d+|\d+\.\d+)(?: (MiB|GiB))?|10\^(\d+)", shown)
            assert number, shown
            scale = {"MiB": 2**20, "GiB": 2**30, None: 1}[number.group(2)]
            value = 10 ** int(number.group(3)) if number.group(3) else float(number.group(1)) * scale
            assert value == field.default, name
            checked += 1
    assert checked >= 15


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


def test_user_script_makes_the_user_and_its_folders(tmp_path):
    (tmp_path / "etc").mkdir()
    for name in ("passwd", "group"):
        (tmp_path / "etc" / name).write_text("root:x:0:0:root:/root:/bin/sh\n")
    if os.geteuid() != 0:
        pytest.skip("only root can give folders away")
    for _ in range(2):  # twice changes nothing
        Image(tmp_path).script(DOCKER / "steps" / "user.sh", tmp_path)
    passwd = (tmp_path / "etc" / "passwd").read_text()
    assert passwd.count(f"bigsap:x:{USER}:{USER}:") == 1
    for folder in ("data", "var/cache/bigsap"):
        found = (tmp_path / folder).stat()
        assert (found.st_uid, found.st_mode & 0o777) == (USER, 0o750)


def test_slim_keeps_what_runs(tmp_path):
    """Libraries without symbols are loaded as before; what nothing imports has gone."""
    import uvloop

    site = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    shutil.copytree(Path(uvloop.__file__).parent, site / "uvloop")
    (site / "uvloop" / "tests").mkdir()
    for name in (
        "pip/__init__.py",
        "pip-25.0.dist-info/RECORD",
        "uvloop/tests/t.py",
        "pipeline/__init__.py",
        "uvloop/more.pyi",
        "bigsap/compile/x.so",
        "nvidia/a.so",
    ):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(b"\x7fELF but no library")
    (library,) = site.glob("uvloop/loop*.so")
    before = library.stat().st_size
    step = [sys.executable, DOCKER / "steps" / "slim.py", tmp_path / "venv"]
    first = subprocess.run(step, capture_output=True, text=True, timeout=200, check=True)
    assert "symbols: " in first.stdout
    left = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    assert {"pipeline/__init__.py", "bigsap/compile/x.so", "nvidia/a.so"} <= left
    assert not [name for name in left if "tests" in name or name.startswith(("pip/", "pip-"))]
    assert not [name for name in left if name.endswith(".pyi")]
    assert library.stat().st_size < before / 2
    code = "import uvloop, asyncio; print(uvloop.__file__, uvloop.run(asyncio.sleep(0, 7)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert done.stdout.split() == [str(site / "uvloop" / "__init__.py"), "7"]
    size = library.stat().st_size
    subprocess.run(step, capture_output=True, timeout=200, check=True)  # twice changes nothing
    assert library.stat().st_size == size


@pytest.mark.parametrize(
    "given", [("--port", "{}"), ("--data", "x", "--port={}"), ("--port", "1", "--port", "{}")]
)
def test_the_health_check_asks_the_port_of_the_arguments(tmp_path, given):
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
        arguments = [word.format(server.server_port) for word in given]
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


# --- the roles ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    # Not below pytest's folder, which other users may not enter.
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="bigsap-image-"))
    folder.chmod(0o755)
    found = Image(folder)
    try:
        found.build()
        yield found
    finally:
        for path in folder.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(folder)


pytestmark = pytest.mark.timeout(900)


def test_code_is_read_only_and_complete(image):
    done = image.run("info", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["extras"]["server"]["fastapi"]
    assert facts["kernel_cache"] == str(image.cache / "numba" / "bigsap")
    (kernels,) = facts["built_kernels"].values()
    assert kernels >= 1
    if os.geteuid() == 0:
        script = f"touch {image.venv}/x {image.scripts}/x"
        done = subprocess.run(
            ["/bin/sh", "-c", script], capture_output=True, timeout=200, check=False, user=USER
        )
        assert done.returncode != 0
        assert done.stderr.count(b"denied") == 2


# Of the kind whose kernels the image was built with.
WARMED = np.random.default_rng(0).integers(0, 99, (60, 60))


def kept(cache: Path) -> list[str]:
    """The kernels that were compiled in a container."""
    return sorted(path.name for path in cache.rglob("*.kernel"))


def test_kernels_of_the_image_are_used(image):
    np.save(image.data / "c.npy", WARMED)
    done = image.run("solve", "c.npy", "--json", "-o", "out.npz", "--method", "ssp")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "optimal"
    assert bigsap.Result.load(image.data / "out.npz").fun == json.loads(done.stdout)["fun"]
    assert kept(image.cache) == []


def test_another_user_may_run_the_image(image):
    """``docker run --user``, whom the folder of kernels compiled here is closed to."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    other = USER + 1
    folder = image.tmp / "theirs"
    folder.mkdir()
    os.chown(folder, other, other)
    np.save(folder / "c.npy", WARMED)
    given = ("solve", folder / "c.npy", "--json", "-o", folder / "out.npz", "--method", "ssp")
    done = image.run(*given, user=other, TMPDIR=folder, HOME=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "out.npz").stat().st_uid == other
    (private,) = folder.glob("tmp.*")
    assert private.stat().st_mode & 0o777 == 0o700
    assert kept(private) == []


def test_cache_that_cannot_be_written_is_an_error(image):
    if os.geteuid() != 0:
        pytest.skip("needs a folder of somebody else's")
    done = image.run("info", NUMBA_CACHE_DIR="/proc/nowhere")
    assert done.returncode == 1
    assert "NUMBA_CACHE_DIR=/proc/nowhere must be a folder" in done.stderr


def test_health_before_any_role_is_bad(image, tmp_path):
    done = subprocess.run(
        image.check,
        env=image.environment(BIGSAP_ROLE_FILE=tmp_path / "absent"),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1
    assert "no role" in done.stderr


def test_service_without_keys_is_refused_beyond_loopback(image):
    done = image.run("serve", BIGSAP_PORT=free_port())
    assert done.returncode == 1
    assert "keys" in done.stderr


def key_for(image: Image) -> str:
    """A key of the role ``key``, entered into a keys file."""
    done = image.run("key", "alice", "read", "submit")
    assert done.returncode == 0, done.stderr
    first, _, table = done.stdout.partition("\n")
    file = image.data / "keys.toml"
    file.write_text(table)
    file.chmod(0o644)
    assert list(tomllib.loads(table)) == ["alice"]
    key = first.split()[-1]
    assert key not in table
    return key


#: Rows that the provider of a waiting job gives before: the job is then in a search.
SEARCHING, ROWS = 1500, 200


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    with Waiting() as found:
        yield found


class Waiting(Provider):
    """A job whose rows come over the loopback, into an image too, and wait in the end."""

    def __init__(self) -> None:
        super().__init__(read(apart(ROWS), range(ROWS)))
        self.always["POST"] = self._give

    @staticmethod
    def _give(handler: Any, ids: Any) -> None:
        provider = handler.provider
        if sum(provider.served.values()) >= SEARCHING:
            provider.released.wait()
        with provider.lock:
            provider.served.update(ids.tolist())
        handler.send_rows(provider.records(ids))

    @property
    def job(self) -> dict[str, Any]:
        cost = {"type": "http_rows", "url": self.url, "dtype": "f8", "timeout": 2 * HANG_S}
        options = {"method": "ssp", "threads": 1, "cache": "32KiB"}
        return {"shape": [ROWS, ROWS], "cost": cost, "options": options}

    @property
    def hosts(self) -> str:
        return json.dumps([self.host])


def wait_until_searching(job) -> None:
    until(lambda: job.ended or job.refresh(wait=1.0).progress.get("phase", 0) >= 1)
    assert not job.ended, job.record


def wait_for_another_attempt(job) -> None:
    def there() -> bool:
        job.refresh(wait=1.0)
        return job.record["attempt"] == 2 and job.state == "running"

    until(there)


def checkpoint_of(image: Image, job) -> Path:
    return image.data / "jobs" / job.id / "checkpoint"


@pytest.mark.slow
def test_service_stops_with_a_checkpoint_and_goes_on(image, waiting):
    from bigsap.client import Client, ServiceError

    key, port = key_for(image), free_port()
    env = {
        "BIGSAP_PORT": port,
        "BIGSAP_KEYS": image.data / "keys.toml",
        "BIGSAP_WORKERS": 1,
        "BIGSAP_CHECKPOINT_S": 3600,
        "BIGSAP_HTTP_ROWS_HOSTS": waiting.hosts,
    }
    service = image.start("serve", **env)
    try:
        service.wait_healthy()
        with Client(f"http://127.0.0.1:{port}", key) as client:
            with Client(client.url) as stranger, pytest.raises(ServiceError) as caught:
                stranger.submit({"type": "array", "values": [[1]]})
            assert caught.value.status == 401
            job = client.submit(waiting.job)
            wait_until_searching(job)
            assert service.stop() == 0, service.log.read_text()[-2000:]
            assert checkpoint_of(image, job).stat().st_size > ROWS * 8
            assert not service.healthy()
            service = image.start(**env)  # no command: the service
            service.wait_healthy()
            wait_for_another_attempt(job)
            job.cancel()
            assert job.wait(HANG_S).state == "cancelled"
            assert service.stop() == 0
    finally:
        service.kill()


@pytest.mark.slow
def test_cluster_roles_and_a_stopped_worker(image, waiting):
    from bigsap.client import Client

    key, port, scheduler_port = key_for(image), free_port(), free_port()
    address = f"tcp://127.0.0.1:{scheduler_port}"
    roles = []

    def start(role: str, **env: object):
        health = {"BIGSAP_HEALTH_PORT": free_port(), "BIGSAP_ROLE_FILE": image.tmp / f"role{len(roles)}"}
        roles.append(image.start(role, **health, **env))
        return roles[-1]

    try:
        scheduler = start(
            "scheduler", BIGSAP_SCHEDULER_HOST="127.0.0.1", BIGSAP_SCHEDULER_PORT=scheduler_port
        )
        scheduler.wait_healthy()
        first = start("worker", BIGSAP_SCHEDULER=address)
        first.wait_healthy()
        service = start(
            "serve",
            BIGSAP_PORT=port,
            BIGSAP_KEYS=image.data / "keys.toml",
            BIGSAP_SCHEDULER=address,
            BIGSAP_DATA=image.data / "cluster",
            BIGSAP_CHECKPOINT_S=3600,
            BIGSAP_HTTP_ROWS_HOSTS=waiting.hosts,
        )
        service.wait_healthy()
        with Client(f"http://127.0.0.1:{port}", key) as client:
            small = client.submit({"type": "array", "values": [[3, 1], [1, 3]]}, wait=60.0)
            assert small.result().fun == 2
            job = client.submit(waiting.job)
            wait_until_searching(job)
            second = start("worker", BIGSAP_SCHEDULER=address)
            second.wait_healthy()
            first.stop()
            assert (image.data / "cluster" / "jobs" / job.id / "checkpoint").exists()
            wait_for_another_attempt(job)
            job.cancel("now")
            job.wait(HANG_S)
    finally:
        for role in reversed(roles):
            if role.process.poll() is None:
                role.process.terminate()
        for role in roles:
            try:
                role.process.wait(HANG_S)
            except subprocess.TimeoutExpired:
                role.kill()


def test_worker_needs_a_scheduler(image):
    done = image.run("worker")
    assert done.returncode != 0
    assert "needs the address of a scheduler" in done.stderr
