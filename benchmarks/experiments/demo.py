"""The demo as a newcomer runs it, with its output kept."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.bench_settings import BenchSettings
from benchmarks.records import Log
from benchmarks.tables import Block, seconds_text

NAME = "demo"
TITLE = "`bigsap demo`"
_FOLDER = "demo-out"
_SHOWN = ("status", "n ", "gap", "seconds in all", "peak resident")


def run(settings: BenchSettings, log: Log) -> None:
    """Run it once, in a process of its own."""
    pixels = settings.demo_pixels
    for key in log.missing([(NAME, "images", pixels, 0, "bigsap demo", 0)]):
        command = [sys.executable, "-m", "bigsap", "demo", "--pixels", str(pixels)]
        command += ["--out", _FOLDER]
        clock = time.perf_counter()
        done = subprocess.run(command, cwd=settings.out, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - clock
        if done.returncode:
            reason = done.stderr.strip()[-500:]
            print(f"{NAME}: left out, exit code {done.returncode}: {reason}")
        else:
            log.add(key, seconds=seconds, output=done.stdout)


def render(log: Log) -> list[Block]:
    """How long it took, and the lines that say what came out."""
    parts: list[Block] = []
    for r in log.of(experiment=NAME):
        lines = [x for x in r["output"].splitlines() if x.startswith(_SHOWN)]
        said = "; ".join(" ".join(x.split()) for x in lines)
        took = seconds_text(r["seconds"])
        parts.append(f"{took} s in all, Python's start included. {said}.")
    return parts
