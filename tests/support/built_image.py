"""Images built by buildah, which needs no daemon, and containers of them, which need no engine.

A container here is what compose.yaml makes of an image: its root file system read-only, /tmp and
the cache's folder of their own, a folder at /data, the image's user, no capability left and
none to be had. It is made by ``unshare`` and ``chroot``, so that one process is what is started,
signals reach it, and its ports are the machine's.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from dockerfile import DOCKER

ROOT = DOCKER.parent
NEEDED = ("buildah", "unshare", "chroot")
#: What the images are built on; Debian's own Python where no registry can be reached.
PYTHON = os.environ.get("BIGSAP_TEST_IMAGE_PYTHON", "3.11")
BASE = f"docker.io/library/python:{PYTHON}-slim-bookworm"
_PULLING = 60


class Store:
    """Where buildah keeps images: a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            "BUILDAH_ISOLATION": "chroot",
            "TMPDIR": str(folder),
        }
        self._storage = [f"--root={folder / 'images'}", f"--runroot={folder / 'run'}"]

    def buildah(self, *arguments: object, seconds: float = 300) -> str:
        """What a command of buildah prints; its complaints in the error if it fails."""
        done = subprocess.run(
            ["buildah", *self._storage, *map(str, arguments)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode:
            said = done.stdout[-3000:] + done.stderr[-3000:]
            raise RuntimeError(f"buildah {shlex.join(map(str, arguments))}\n{said}")
        return done.stdout.strip()

    def has(self, name: str) -> bool:
        return name in self.buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()

    def base(self) -> str:
        """Have the images' base; "pulled", or "made" of Debian's packages."""
        if self.has(BASE):
            return "there already"
        try:
            self.buildah("pull", "--quiet", BASE, seconds=_PULLING)
            return "pulled"
        except (RuntimeError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [ROOT / "tests" / "support" / "base_image.sh", self.folder / "base", BASE, *self._storage],
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"no {BASE}, and none could be made: {done.stderr}") from None
            return "made of Debian's packages"

    def build(self, dockerfile: str, tag: str, **arguments: str) -> float:
        """Build one of docker/'s files as its comment says; the seconds it took."""
        clock = time.perf_counter()
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        # What the machine's pip needs to reach its index, the build's pip needs too.
        for path in ("/etc/ssl/certs", "/etc/pip.conf"):
            if Path(path).exists():
                given.append(f"--volume={path}:{path}:ro")
        self.buildah(
            "bud",
            "--pull-never",
            "--format=docker",
            f"--build-arg=PYTHON={PYTHON}",
            *given,
            "--file",
            DOCKER / dockerfile,
            "--ignorefile",
            DOCKER / f"{dockerfile}.dockerignore",
            "--tag",
            tag,
            ROOT,
            seconds=3000,
        )
        return time.perf_counter() - clock


class Built:
    """A built image and a folder for what its containers write."""

    def __init__(self, store: Store, tag: str, scratch: Path, user: int = 10001) -> None:
        self.tag, self.scratch, self.user = tag, scratch, user
        self._store = store
        self._container = store.buildah("from", "--pull-never", tag)
        self.root = Path(store.buildah("mount", self._container))
        found = json.loads(store.buildah("inspect", "--type", "image", tag))
        self.config: dict[str, Any] = found["Docker"]["config"]
        self.data, self.cache = scratch / "data", scratch / "cache"
        self.tmp = scratch / "tmp"
        for path in (self.data, self.cache, self.tmp):
            path.mkdir(parents=True, exist_ok=True)
            os.chown(path, user, user)

    def close(self) -> None:
        """Give the mount back; the image stays."""
        self._store.buildah("umount", self._container)
        self._store.buildah("rm", self._container)

    def size(self) -> int:
        """Bytes of all files of the image."""
        seen: dict[tuple[int, int], int] = {}
        for folder, _, files in os.walk(self.root):
            for name in files:
                found = os.lstat(os.path.join(folder, name))
                seen[found.st_dev, found.st_ino] = found.st_size
        return sum(seen.values())

    def command(
        self, given: list[str], env: dict[str, object], user: int, volumes: dict[str, str]
    ) -> list[str]:
        """What makes this process a container in which ENTRYPOINT and ``given`` run."""
        at = shlex.quote(str(self.root))
        mounts = {
            str(self.data): "/data",
            str(self.cache): "/var/cache/bigsap",
            str(self.tmp): "/tmp",
            **volumes,
        }
        script = [f"mount --bind {at} {at}"]
        script += [f"mount --rbind /{name} {at}/{name}" for name in ("proc", "dev", "sys")]
        # Targets are made as Docker makes them: in the container's own layer.
        for source, target in volumes.items():
            folder = target if Path(source).is_dir() else str(Path(target).parent)
            script.append(f"mkdir -p {at}{folder}")
            if folder != target:
                script.append(f"touch {at}{target}")
        script += [f"mount --bind {shlex.quote(source)} {at}{target}" for source, target in mounts.items()]
        script.append(f"mount -o remount,ro,bind {at}")
        config = dict(word.split("=", 1) for word in self.config["Env"])
        variables = [f"{name}={value}" for name, value in {**config, **env}.items()]
        inside = [
            "setpriv",
            f"--reuid={user}",
            f"--regid={user}",
            "--clear-groups",
            "--no-new-privs",
            "--bounding-set=-all",
            "--inh-caps=-all",
            "env",
            "-i",
            "-C",
            self.config["WorkingDir"] or "/",
            *variables,
            *self.config["Entrypoint"],
            *(given or self.config["Cmd"]),
        ]
        script.append(f"exec chroot {at} {shlex.join(inside)}")
        whole = " && ".join(script)
        return ["unshare", "--mount", "--propagation=private", "/bin/sh", "-c", whole]

    def run(
        self,
        *command: object,
        user: int | None = None,
        seconds: float = 180,
        volumes: dict[str, str] | None = None,
        **env: object,
    ) -> subprocess.CompletedProcess[str]:
        """``docker run --rm --read-only``: until it ends."""
        given = [str(word) for word in command]
        return subprocess.run(
            self.command(given, env, user or self.user, volumes or {}),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def start(self, *command: object, volumes: dict[str, str] | None = None, **env: object) -> Container:
        """``docker run -d``."""
        return Container(self, [str(word) for word in command], volumes or {}, env)

    def shell(self, script: str, **env: object) -> subprocess.CompletedProcess[str]:
        """``docker run --entrypoint /bin/sh``, with the image's user."""
        entry, self.config["Entrypoint"] = self.config["Entrypoint"], ["/bin/sh", "-c"]
        try:
            return self.run(script, **env)
        finally:
            self.config["Entrypoint"] = entry

    def forget(self) -> None:
        """Empty what containers have written."""
        for folder in (self.data, self.cache, self.tmp):
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()


class Container:
    """A running container."""

    def __init__(
        self, image: Built, command: list[str], volumes: dict[str, str], env: dict[str, object]
    ) -> None:
        self.image, self.env = image, env
        self.log = image.scratch / f"{command[0] if command else 'default'}-{time.monotonic_ns()}"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                image.command(command, env, image.user, volumes),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def healthy(self) -> bool:
        """What HEALTHCHECK says, run as an engine runs it: in the container's place."""
        kind, *check = self.image.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        return self.image.shell(shlex.join(check), **self.env).returncode == 0

    def wait_healthy(self, seconds: float = 60) -> float:
        """The seconds until it was."""
        start = time.monotonic()
        while not self.healthy():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < start + seconds, self.log.read_text()[-3000:]
            time.sleep(0.2)
        return time.monotonic() - start

    def stop(self, seconds: float = 60) -> int:
        """STOPSIGNAL to the one process; the exit code."""
        name = self.image.config.get("StopSignal") or "SIGTERM"
        self.process.send_signal(getattr(signal, name))
        return self.process.wait(seconds)

    def kill(self) -> None:
        """Whatever is left of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
