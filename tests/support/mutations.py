"""Wrong lines that the tests must notice: ``python tests/support/mutations.py [NUMBER ...]``.

Each mutation is one line of the engine, the cache, the certificate, the service or of what keeps
kernels, made wrong in a copy of the tree, and the tests that shall fail for it: those of ``make
test``, nothing that is slow. They must pass before. What survives is listed, and the exit status
is 1. ``make test-all`` runs it; it takes half an hour.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_suffix(".txt")
_SECONDS = 600


@dataclass(frozen=True)
class Mutation:
    """``old``, once in ``file``, becomes ``new``; ``tests`` are pytest's arguments."""

    file: str
    old: str
    new: str
    tests: str


def listed(file: Path = LIST) -> list[Mutation]:
    """The mutations of ``mutations.txt``: a file and its tests, lines with ``-``, and what they become."""
    found = []
    for block in file.read_text().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith("#")]
        if lines:
            old, new = ([line[2:] for line in lines if line[:2] == sign] for sign in ("- ", "+ "))
            name, _, tests = lines[0].partition(" ")
            found.append(Mutation(name, "\n".join(old), "\n".join(new), tests))
    return found


MUTATIONS = listed()


def copied(folder: Path) -> None:
    """The tree's files, and the kernels that are compiled already."""
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    kernels = (ROOT / "bigsap" / "__pycache__").glob("*.kernel")
    for name in [*tracked, *(str(file.relative_to(ROOT)) for file in kernels)]:
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)


def misplaced(mutations: Iterable[Mutation]) -> list[str]:
    """What cannot be made wrong: the line is not in its file, or more than once."""
    found = []
    for mutation in mutations:
        times = (ROOT / mutation.file).read_text().count(mutation.old)
        if times != 1:
            found.append(f"{mutation.file} has {times} times: {mutation.old.strip()}")
    return found


def path_of(folder: Path) -> str:
    """Python's path that puts the copy before what is installed."""
    return os.pathsep.join([str(folder), str(folder / "server")])


def imported(folder: Path) -> list[Path]:
    """Where the packages that are made wrong come from when ``folder`` is tested."""
    code = "import bigsap, bigsap_server as s; print(bigsap.__file__, s.__file__, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": path_of(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(line) for line in done.stdout.splitlines()]


def failing(tests: str, folder: Path) -> bool:
    """Whether tests of ``folder`` fail; too long a time is a failure."""
    environment = {**os.environ, "PYTHONPATH": path_of(folder)}
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-x",
                "--no-header",
                "-p",
                "no:cacheprovider",
                "-m",
                "not slow",
                *shlex.split(tests),
            ],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode > 1:
        raise SystemExit(f"pytest {tests} ended with {done.returncode}")
    return done.returncode == 1


def killed(mutation: Mutation, folder: Path) -> bool:
    """Whether the tests named fail in ``folder`` with the line made wrong."""
    file = folder / mutation.file
    text = file.read_text()
    file.write_text(text.replace(mutation.old, mutation.new))
    try:
        return failing(mutation.tests, folder)
    finally:
        file.write_text(text)


def main() -> int:
    numbers = [int(number) for number in sys.argv[1:]] or list(range(len(MUTATIONS)))
    chosen = [MUTATIONS[number] for number in numbers]
    for line in misplaced(chosen):
        print(line)
    if misplaced(chosen):
        print("nothing was run: these lines have changed, and so must their mutations")
        return 1
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="bigsap-mutations-") as name:
        folder = Path(name)
        copied(folder)
        for file in imported(folder):
            if folder.resolve() not in file.resolve().parents:
                raise SystemExit(f"{file} is imported, not its copy in {folder}")
        for tests in dict.fromkeys(mutation.tests for mutation in chosen):
            if failing(tests, folder):
                raise SystemExit(f"{tests}: they fail as it is")
        print("the tests pass as it is", flush=True)
        for number, mutation in zip(numbers, chosen, strict=True):
            dead = killed(mutation, folder)
            survivors += not dead
            said = "killed  " if dead else "SURVIVED"
            line = mutation.new.strip().split("\n")[0]
            print(f"{said} {number:2} {mutation.file}: {line}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutations killed")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
