"""What a Dockerfile says, for those who have no Docker engine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

DOCKER = Path(__file__).parents[2] / "docker"


def instructions(name: str) -> list[tuple[str, str]]:
    """(instruction, arguments) of a Dockerfile, continued lines joined."""
    text = (DOCKER / name).read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]  # type: ignore[misc]


def values(name: str, instruction: str) -> list[str]:
    return [arguments for found, arguments in instructions(name) if found == instruction]


def stages(name: str) -> list[list[tuple[str, str]]]:
    """The instructions after each FROM."""
    found: list[list[tuple[str, str]]] = []
    for kind, arguments in instructions(name):
        if kind == "FROM":
            found.append([])
        elif found:
            found[-1].append((kind, arguments))
    return found


def variables(arguments: str) -> Iterator[tuple[str, str]]:
    """(name, value) of an ENV."""
    for word in shlex.split(arguments):
        yield tuple(word.split("=", 1))  # type: ignore[misc]
