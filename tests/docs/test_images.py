"""Both images, really built: entrypoints, health, users, a root that cannot be written, size.

For ``make test-image``: ten minutes with all kernels, and gigabytes of downloads for the GPU
image. ``BIGSAP_TEST_IMAGE_KERNELS=v3`` builds those of one level in a few minutes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import bigsap
from built_image import NEEDED, Built, Store
from dockerfile import DOCKER
from live_server import free_port

yaml = pytest.importorskip("yaml", reason="extra dev")
pytest.importorskip("fastapi", reason="extra server")

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("BIGSAP_TEST_IMAGE") != "built", reason="images are built by make test-image"
    ),
    pytest.mark.timeout(3600),
]

FIRST_JOB_S = 3.0
KERNELS = os.environ.get("BIGSAP_TEST_IMAGE_KERNELS", "all")
#: The version of CUDA whose image is built.
CUDA = os.environ.get("BIGSAP_TEST_IMAGE_CUDA", "13")
WHOLE = np.random.default_rng(0).integers(0, 99, (60, 60))


def best_level() -> str:
    from bigsap.compile.cpu_levels import usable_levels

    return usable_levels()[0].removeprefix("x86-64-")


@pytest.fixture(scope="session")
def store() -> Store:
    """A folder that lasts: the base is made once, and images are there to be looked at."""
    for name in NEEDED:
        if shutil.which(name) is None:
            pytest.fail(f"no {name}: sudo apt-get install buildah util-linux")
    if os.geteuid() != 0:
        pytest.fail("images are built and run as root here (sudo make test-image)")
    folder = Path(os.environ.get("BIGSAP_TEST_IMAGE_STORE", tempfile.gettempdir())) / "bigsap-images"
    found = Store(folder)
    print(f"\nbase: {found.base()}")
    return found


def built(store: Store, dockerfile: str, tag: str, **arguments: str) -> Iterator[Built]:
    seconds = store.build(dockerfile, tag, **arguments)
    # Not below pytest's folder, which other users may not enter.
    scratch = Path(tempfile.mkdtemp(prefix="bigsap-container-"))
    scratch.chmod(0o755)
    found = Built(store, f"localhost/{tag}", scratch)
    print(f"\n{tag}: built in {seconds:.0f} s, {found.size() / 1e6:.0f} MB")
    try:
        yield found
    finally:
        found.close()
        shutil.rmtree(scratch)


@pytest.fixture(scope="module")
def cpu(store: Store) -> Iterator[Built]:
    yield from built(store, "Dockerfile", "bigsap", BIGSAP_WHEEL_KERNELS=KERNELS)


@pytest.fixture(scope="module")
def gpu(store: Store) -> Iterator[Built]:
    # The kernels are those of the CPU image: here they only have to be there.
    yield from built(
        store, "Dockerfile.gpu", f"bigsap-cuda{CUDA}", CUDA=CUDA, BIGSAP_WHEEL_KERNELS=best_level()
    )


@pytest.fixture(params=["cpu", "gpu"])
def image(request: pytest.FixtureRequest) -> Built:
    found: Built = request.getfixturevalue(request.param)
    found.forget()
    return found


def facts(image: Built) -> dict[str, Any]:
    done = image.run("info", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def kept(folder: Path) -> list[str]:
    """Kernels that were compiled in a container."""
    return sorted(path.name for path in folder.rglob("*.kernel"))


# --- what it is -----------------------------------------------------------------------------


def test_configuration_is_that_of_the_file(image: Built) -> None:
    config = image.config
    assert config["User"] == "10001:10001"
    assert config["WorkingDir"] == "/data"
    assert set(config["Volumes"]) == {"/data", "/var/cache/bigsap"}
    assert set(config["ExposedPorts"]) == {"8765/tcp"}
    assert config["Healthcheck"]["Test"][0] == "CMD"
    assert config["Entrypoint"] == ["/usr/local/lib/bigsap/entrypoint.sh"]
    assert config["Cmd"] == ["serve"]
    assert config["Labels"]["org.opencontainers.image.licenses"] == "BSD-3-Clause"


# --- commands -------------------------------------------------------------------------------


def test_a_first_job_finds_its_kernels(image: Built) -> None:
    np.save(image.data / "c.npy", WHOLE)
    start = time.monotonic()
    done = image.run("solve", "c.npy", "--json", "-o", "out.npz")
    seconds = time.monotonic() - start
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    print(f"{image.tag}: first job {seconds:.2f} s")
    assert record["status"] == "optimal"
    assert bigsap.Result.load(image.data / "out.npz").fun == bigsap.solve(WHOLE).fun
    assert seconds < FIRST_JOB_S
    assert kept(image.cache) == []


def test_the_root_cannot_be_written(image: Built) -> None:
    done = image.shell("touch /x /opt/bigsap/x /usr/local/lib/bigsap/x /etc/x; touch /tmp/y /data/y")
    assert done.returncode == 0
    assert done.stderr.count("Read-only file system") + done.stderr.count("denied") == 4
    assert image.shell("id -u; id -G").stdout.split() == ["10001", "10001"]
    # Without the read-only mount the code still belongs to somebody else.
    for folder in ("opt/bigsap", "usr/local/lib/bigsap"):
        for path in (image.root / folder).rglob("*"):
            found = path.lstat()
            assert found.st_uid == 0
            assert path.is_symlink() or not found.st_mode & 0o022, path


def test_no_capability_is_left(image: Built) -> None:
    status = image.shell("grep -E '^(Cap|NoNewPrivs)' /proc/self/status").stdout
    assert dict(re.findall(r"(\w+):\s*(\w+)", status)) == {
        **{f"Cap{kind}": "0" * 16 for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")},
        "NoNewPrivs": "1",
    }


def test_errors_of_the_entrypoint(image: Built) -> None:
    done = image.run("worker")
    assert done.returncode != 0
    assert "needs the address of a scheduler" in done.stderr
    done = image.run("serve", BIGSAP_PORT=free_port())
    assert done.returncode == 1
    assert "keys" in done.stderr
    done = image.run("info", NUMBA_CACHE_DIR="/nowhere")
    assert done.returncode == 1
    assert "must be a folder that can be written" in done.stderr
    done = image.run("no-such-command")
    assert done.returncode == 2
    assert "no-such-command" in done.stderr


# --- the GPU image, where there is no GPU ---------------------------------------------------


def test_cupy_is_there_and_finds_no_device(gpu: Built) -> None:
    gpu.forget()
    code = "import cupy; print(cupy.__version__, cupy.cuda.nvrtc.getVersion())"
    done = gpu.shell(f"/opt/bigsap/bin/python -c '{code}'")
    assert done.returncode == 0, done.stderr
    version, compiler = done.stdout.split(None, 1)
    assert int(version.split(".")[0]) >= 14
    assert compiler.strip().startswith(f"({CUDA},")
    text = gpu.run("info").stdout
    assert "cupy" in text
    extras = facts(gpu)["extras"]
    assert any("cupy" in json.dumps(extra) for extra in extras.values())


# --- roles ----------------------------------------------------------------------------------


def new_key(image: Built) -> str:
    """A key by the role ``key``, entered into keys.toml."""
    done = image.run("key", "alice", "read", "submit")
    assert done.returncode == 0, done.stderr
    first, _, table = done.stdout.partition("\n")
    file = image.scratch / "keys.toml"
    file.write_text(table)
    file.chmod(0o644)
    assert list(tomllib.loads(table)) == ["alice"]
    return first.split()[-1]


def wait_ready(port: int, seconds: float = 30) -> None:
    """What a load balancer waits for: the workers are there."""
    until = time.monotonic() + seconds
    while httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=10).status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("options", [{}, {"method": "ssp"}])
def test_the_service_of_the_compose_file(image: Built, options: dict[str, str]) -> None:
    """As compose.yaml has it: its command, environment and secret; a job, then ``docker stop``."""
    from bigsap.client import Client

    given = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]["service"]
    environment = {k: v for k, v in given["environment"].items() if "$" not in v}
    key, port = new_key(image), free_port()
    secret = {str(image.scratch / "keys.toml"): environment["BIGSAP_KEYS"]}
    service = image.start(*given["command"], volumes=secret, **environment, BIGSAP_PORT=port)
    try:
        seconds = service.wait_healthy()
        wait_ready(port)
        with Client(f"http://127.0.0.1:{port}", key) as client:
            start = time.monotonic()
            cost = {"type": "array", "values": WHOLE.tolist()}
            job = client.submit({"cost": cost, "options": options}, wait=60.0)
            first = time.monotonic() - start
            assert job.result().fun == bigsap.solve(WHOLE).fun
        print(f"{image.tag}: healthy after {seconds:.1f} s, first job {first:.2f} s")
        assert first < FIRST_JOB_S
        assert kept(image.cache) == []
        assert service.stop() == 0, service.log.read_text()[-2000:]
        assert not service.healthy()
    finally:
        service.kill()
