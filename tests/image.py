"""An image's file system without Docker: built by what its Dockerfile says.

No change of the root folder: every path of the image is mapped below a folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dockerfile import DOCKER, stages, variables
from gate import HANG_S, until

ROOT = DOCKER.parent
# The user of the images. Only root can become another user; others stay what they are.
USER = 10001
# Folders that the images are about; other paths are the system's own.
OWN = re.compile(r"(?<![\w.])/(data|opt|src|steps|tmp|var/cache|usr/local/lib/bigsap)(?=/|$|\s)")


class Image:
    """``folder`` as the root of an image: code that cannot be written, data that can."""

    def __init__(self, folder: Path, dockerfile: str = "Dockerfile") -> None:
        self.folder = folder
        self.venv = folder / "opt" / "bigsap"
        self.scripts = folder / "usr" / "local" / "lib" / "bigsap"
        self.data, self.tmp = folder / "data", folder / "tmp"
        self.cache = folder / "var" / "cache" / "bigsap"
        self.building, self.running = stages(dockerfile)
        self.user = int(self._last("USER").split(":")[0])
        self.entry = self._words(self._last("ENTRYPOINT"))
        self.default = self._words(self._last("CMD"))
        self.check = self._words(re.sub(r"^.*?CMD ", "", self._last("HEALTHCHECK")))
        self.workdir = Path(self.mapped(self._last("WORKDIR")))
        self.volumes = self._words(self._last("VOLUME"))

    def _last(self, kind: str) -> str:
        return [arguments for found, arguments in self.running if found == kind][-1]

    def mapped(self, text: str) -> str:
        """The paths of a text, each below ``folder``."""
        return OWN.sub(rf"{self.folder}/\1", text)

    def _words(self, text: str) -> list[str]:
        return [self.mapped(word) for word in json.loads(text)]

    def build(self) -> None:
        """The steps of the Dockerfile, in their order."""
        for name in ("etc", "usr/local/lib", "var/cache"):
            (self.folder / name).mkdir(parents=True)
        for name in ("passwd", "group"):
            (self.folder / "etc" / name).write_text("root:x:0:0:root:/root:/bin/sh\n")
        self.tmp.mkdir()
        self.tmp.chmod(0o1777)
        self._steps(self.building)
        # The second stage has of the first one what it copies, under the same names: programs
        # of a virtual environment know where they are.
        copied = [a.split()[1:] for k, a in self.running if k == "COPY" and "--from=build" in a]
        assert all(source == target for source, target in copied)
        kept = {Path(self.mapped(source)) for source, _ in copied}
        for path in [*self.folder.glob("opt/*"), self.folder / "src", self.folder / "steps"]:
            if path not in kept:
                shutil.rmtree(path)
        self._steps(self.running)
        for folder in (self.folder / "opt", self.folder / "usr"):
            for path in [folder, *folder.rglob("*")]:
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode & ~0o222)

    def _steps(self, stage: list[tuple[str, str]]) -> None:
        env: dict[str, str] = {}
        for kind, arguments in stage:
            if kind == "ENV":
                env |= {name: self.mapped(value) for name, value in variables(arguments)}
            elif kind == "COPY" and not arguments.startswith("--from"):
                self._copy(*arguments.split())
            elif kind == "RUN":
                command = self._words(arguments)
                step = Path(command[0]).name
                if step == "user.sh" and os.geteuid() != 0:
                    self.data.mkdir()  # only root can make users and give folders away
                    self.cache.mkdir()
                else:
                    root = [str(self.folder)] if step == "user.sh" else []
                    self.script(*command, *root, timeout=800)

    def _copy(self, *arguments: str) -> None:
        *sources, target = arguments
        there = Path(self.mapped(target))
        assert there != Path(target), f"{target} is none of the image's own folders"
        ignored = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc", ".*")
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, there, ignore=ignored)
            elif target.endswith("/"):
                there.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, there / Path(source).name)
            else:
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, there)

    def script(self, *command: object, timeout: float = 60) -> None:
        """Run one of ``docker/steps``."""
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            # Where tests run, downloads are kept.
            env={
                **surroundings(),
                "PATH": f"{interpreter().parent}:{os.environ['PATH']}",
                **few_kernels(),
                "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache/pip")),
            },
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def environment(self, **given: object) -> dict[str, str]:
        """What the image's ENV says, and what its scripts take where it says nothing."""
        taken = re.findall(r"\$\{(\w+):-(/[\w/-]+)\}", (self.scripts / "entrypoint.sh").read_text())
        assert len(taken) >= 4
        found = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": str(self.tmp)}
        for name, value in taken:
            found[name] = self.mapped(value)
        for kind, arguments in self.running:
            for name, value in variables(arguments) if kind == "ENV" else ():
                parts = map(self.mapped, value.split(":"))
                found[name] = ":".join(parts).replace("$PATH", found["PATH"])
        return {**found, **{name: str(value) for name, value in given.items()}}

    def start(self, *command: object, **env: object) -> Role:
        """ENTRYPOINT with this command or, without one, CMD, as the image's user."""
        return Role(self, [str(part) for part in command], self.environment(**env))

    def run(
        self, *command: object, user: int | None = None, **env: object
    ) -> subprocess.CompletedProcess[str]:
        """The same, until it ends. user: another one, ``docker run --user``."""
        return subprocess.run(
            self.command([str(part) for part in command]),
            cwd=self.workdir,
            env=self.environment(**env),
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
            **identity(user or self.user),
        )

    def command(self, given: list[str]) -> list[str]:
        """What is run when ``given`` follows the image's name."""
        return [*self.entry, *(given or self.default)]


#: Of whole numbers, by `bigsap solve --method ssp`.
KINDS = "int64 costs, float64 prices, ssp"


def few_kernels() -> dict[str, str]:
    """What makes a wheel carry the kernels of one kind for this machine, in seconds."""
    from bigsap.compile.cpu_levels import usable_levels

    best = usable_levels()[0].removeprefix("x86-64-")
    return {"BIGSAP_WHEEL_KERNELS": best, "BIGSAP_WHEEL_KINDS": KINDS}


def surroundings() -> dict[str, str]:
    """The environment without what leads Python to other code than the image's."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def interpreter() -> Path:
    """A Python that the image's user may run; that of the tests may lie in somebody's home."""
    asked = "import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 11))"
    own = [Path(sys.base_prefix) / "bin" / "python3"]
    others = [Path(folder) / "python3" for folder in ("/usr/local/bin", "/usr/bin")]
    for candidate in own + others:
        try:
            done = subprocess.run(
                [candidate, "-c", asked], cwd="/", capture_output=True, timeout=30, check=False, **identity()
            )
        except OSError:
            continue
        if done.returncode == 0:
            return candidate
    pytest.skip("no Python with venv that another user may run")


def identity(user: int = USER) -> dict[str, object]:
    """Keywords of subprocess that make a child the image's user."""
    return {"user": user, "group": user, "extra_groups": []} if os.geteuid() == 0 else {}


class Role:
    """A running role of the image."""

    def __init__(self, image: Image, command: list[str], env: dict[str, str]) -> None:
        self.image, self.env = image, env
        self.log = image.tmp / f"{command[0] if command else 'default'}-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                image.command(command),
                cwd=image.workdir,
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **identity(image.user),  # type: ignore[call-overload]
            )

    def healthy(self) -> bool:
        """What HEALTHCHECK says."""
        done = subprocess.run(
            self.image.check,
            env=self.env,
            capture_output=True,
            timeout=HANG_S,
            check=False,
            **identity(self.image.user),
        )
        return done.returncode == 0

    def wait_healthy(self) -> None:
        until(lambda: self.process.poll() is not None or self.healthy())
        assert self.process.poll() is None, self.log.read_text()[-3000:]

    def stop(self, seconds: float = HANG_S) -> int:
        """SIGTERM to the one process, as ``docker stop`` does; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """Whatever is left of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
