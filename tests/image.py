"""An image's file system without Docker: built by the scripts that the images are built by."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCKER = ROOT / "docker"
# The user of the images. Only root can become another user; others stay what they are.
USER = 10001


class Image:
    """``folder`` as the root of an image: code that cannot be written, data that can."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.venv = folder / "opt" / "bigsap"
        self.kernels = folder / "opt" / "bigsap-kernels"
        self.scripts = folder / "usr" / "local" / "lib" / "bigsap"
        self.data, self.cache, self.tmp = folder / "data", folder / "cache", folder / "tmp"

    def build(self) -> None:
        """The steps of the Dockerfile, in their order."""
        source = self.folder / "src"
        ignored = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc", ".*")
        source.mkdir(parents=True)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source / name)
        for name in ("bigsap", "server"):
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        self.script("install.sh", source, self.venv, "server,zarr", timeout=500)
        shutil.rmtree(source)
        self._warm()
        self.scripts.mkdir(parents=True)
        for name in ("entrypoint.sh", "health.py", "preload.py"):
            shutil.copy(DOCKER / name, self.scripts / name)
        for folder in (self.data, self.cache, self.tmp):
            folder.mkdir()
            if os.geteuid() == 0:
                os.chown(folder, USER, USER)
        for folder in (self.folder / "opt", self.folder / "usr"):
            for path in [folder, *folder.rglob("*")]:
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode & ~0o222)

    def script(self, name: str, *arguments: object, timeout: float = 60) -> None:
        """Run one of ``docker/steps``."""
        done = subprocess.run(
            [DOCKER / "steps" / name, *map(str, arguments)],
            capture_output=True,
            text=True,
            # Where tests run, downloads are kept.
            env={
                **os.environ,
                "PATH": f"{interpreter().parent}:{os.environ['PATH']}",
                "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache/pip")),
            },
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def _warm(self) -> None:
        """Begin the step that compiles all kernels; the whole of it takes minutes.

        ``BIGSAP_TEST_IMAGE=full`` waits for it.
        """
        full = os.environ.get("BIGSAP_TEST_IMAGE") == "full"
        process = subprocess.Popen(
            [DOCKER / "steps" / "warm.sh", str(self.venv)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": str(self.kernels / "numba")},
        )
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()

        def read() -> None:
            for line in process.stdout or ():
                lines.put(line)
            lines.put("")

        reader = threading.Thread(target=read)
        reader.start()
        said: list[str] = []
        try:
            # A title, then a line as each kind begins: with the third, one kind is compiled.
            while line := lines.get(timeout=900 if full else 120):
                said.append(line)
                if not full and len(said) == 3:
                    break
            else:
                assert process.wait(10) == 0
                assert said[-1].split()[1:3] == ["kinds", "ready"]
            assert said[0].startswith("compiling the kernels")
        finally:
            process.kill()
            process.wait()
            reader.join()
            if process.stdout is not None:
                process.stdout.close()

    def environment(self, **given: object) -> dict[str, str]:
        """What the image's ENV says, with paths below ``folder``."""
        return {
            "PATH": f"{self.venv}/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.tmp),
            "TMPDIR": str(self.tmp),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(self.cache / "numba"),
            "BIGSAP_VENV": str(self.venv),
            "BIGSAP_KERNELS": str(self.kernels),
            "BIGSAP_DATA": str(self.data),
            "BIGSAP_ROLE_FILE": str(self.tmp / "role"),
            "BIGSAP_SCRATCH": str(self.tmp),
            **{name: str(value) for name, value in given.items()},
        }

    def start(self, *command: object, **env: object) -> Role:
        """The entrypoint with this command, as the image's user."""
        return Role(self, [str(part) for part in command], self.environment(**env))

    def run(self, *command: object, **env: object) -> subprocess.CompletedProcess[str]:
        """The same, until it ends."""
        return subprocess.run(
            [self.scripts / "entrypoint.sh", *map(str, command)],
            cwd=self.data,
            env=self.environment(**env),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            **identity(),
        )


def interpreter() -> Path:
    """A Python that the image's user may run; that of the tests may lie in somebody's home."""
    asked = "import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 11))"
    own = [Path(sys.base_prefix) / "bin" / "python3"]
    others = [Path(folder) / "python3" for folder in ("/usr/local/bin", "/usr/bin")]
    for candidate in own + others:
        try:
            done = subprocess.run(
                [candidate, "-c", asked],
                cwd="/",
                capture_output=True,
                timeout=30,
                check=False,
                **identity(),
            )
        except OSError:
            continue
        if done.returncode == 0:
            return candidate
    pytest.skip("no Python with venv that another user may run")


def identity() -> dict[str, object]:
    """Keywords of subprocess that make a child the image's user."""
    return {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}


class Role:
    """A running role of the image."""

    def __init__(self, image: Image, command: list[str], env: dict[str, str]) -> None:
        self.image, self.env = image, env
        self.log = image.tmp / f"{command[0] if command else 'default'}-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [image.scripts / "entrypoint.sh", *command],
                cwd=image.data,
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **identity(),  # type: ignore[call-overload]
            )

    def healthy(self) -> bool:
        """What HEALTHCHECK says."""
        done = subprocess.run(
            [self.image.venv / "bin" / "python", self.image.scripts / "health.py"],
            env=self.env,
            capture_output=True,
            timeout=20,
            check=False,
            **identity(),
        )
        return done.returncode == 0

    def wait_healthy(self, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while not self.healthy():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < until, self.log.read_text()[-3000:]
            time.sleep(0.2)

    def stop(self, seconds: float = 60) -> int:
        """SIGTERM to the one process, as ``docker stop`` does; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """Whatever is left of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
