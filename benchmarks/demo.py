"""The demo as a newcomer runs it, with its output kept."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.bench_settings import BenchSettings
from benchmarks.records import Log
from benchmarks.report import seconds_text

NAME = "demo"
TITLE = "`bigsap demo`"
_FOLDER = "demo-out"


def run(settings: BenchSettings, log: Log) -> None:
    """Run it once, in a process of its own."""
    pixels = settings.demo_pixels
    if log.has(NAME, "images", pixels, 0, "bigsap demo", 0):
        return
    command = [sys.executable, "-m", "bigsap", "demo", "--pixels", str(pixels), "--out", _FOLDER]
    clock = time.perf_counter()
    done = subprocess.run(command, cwd=settings.out, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - clock
    if done.returncode:
        print(f"{NAME}: left out, exit code {done.returncode}: {done.stderr.strip()[-500:]}")
        return
    log.add(NAME, "images", pixels, 0, "bigsap demo", 0, seconds=seconds, output=done.stdout)


def render(settings: BenchSettings, log: Log) -> str:
    """Its output, and how long it took."""
    parts = []
    for record in log.of(experiment=NAME):
        took = seconds_text(record["seconds"])
        parts.append(f"{took} s in all, Python's start included:")
        parts.append(f"```\n{record['output'].strip()}\n```")
    return "\n\n".join(parts)


def brief(settings: BenchSettings, log: Log) -> str:
    """How long it took, and the lines that say what came out."""
    shown = ("status", "n ", "gap", "seconds in all", "peak resident")
    parts = []
    for record in log.of(experiment=NAME):
        lines = [x for x in record["output"].splitlines() if x.startswith(shown)]
        took = seconds_text(record["seconds"])
        said = "; ".join(" ".join(line.split()) for line in lines)
        parts.append(f"{took} s in all, Python's start included. {said}.")
    return "\n\n".join(parts)
