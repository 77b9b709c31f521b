"""From nothing to an answer: the import, and a second process, kernels cached on disk."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks.bench_settings import BenchSettings
from benchmarks.records import Log
from benchmarks.tables import Block, middle, seconds_text, table, verdict

NAME = "startup"
TITLE = "Start-up, kernels cached on disk"
SIZE = 200
#: What is measured: field of the log, and the bar.
_MEASURED = {
    "Python with numpy alone": ("bare_seconds", None),
    "import bigsap": ("import_seconds", 1.0),
    f"first solve, n = {SIZE}": ("solve_seconds", None),
    f"process has solved n = {SIZE}": ("process_seconds", 1.5),
}
_CODE = f"""
import json, time
import numpy
begun = time.perf_counter()
import bigsap
imported = time.perf_counter()
bigsap.solve(numpy.random.default_rng(0).random(({SIZE}, {SIZE})), threads=1)
print(json.dumps([imported - begun, time.perf_counter() - imported]))
"""


def run(settings: BenchSettings, log: Log) -> None:
    """Several processes, one after the other."""
    seeds = range(settings.startup_seeds)
    missing = log.missing((NAME, "random", SIZE, seed, "bigsap", 1) for seed in seeds)
    if missing:
        _process(_CODE)  # the first one compiles what is not on disk
    for key in missing:
        bare, _ = _process("import numpy")
        whole, said = _process(_CODE)
        imported, solved = json.loads(said)
        own = {"import_seconds": imported, "solve_seconds": solved, "process_seconds": whole}
        log.add(key, bare_seconds=bare, **own)


def _process(code: str) -> tuple[float, str]:
    """Seconds of a Python that runs the code, and what it prints."""
    clock = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return time.perf_counter() - clock, done.stdout


def render(log: Log) -> list[Block]:
    """Medians, against the bars."""
    rows = []
    for label, (field, bar) in _MEASURED.items():
        seconds = middle(log.values(field, experiment=NAME))
        met = "-" if bar is None else f"{bar} s: {verdict(seconds, bar, at_most=True)}"
        rows.append(f"{label} | {seconds_text(seconds)} | {met}")
    count = len(log.values("import_seconds", experiment=NAME))
    note = f"Medians of {count} processes; numpy's own import is not in that of bigsap."
    return [table("what | seconds | bar", rows), note]
