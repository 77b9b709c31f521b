"""From nothing to an answer: the import, and a second process, kernels cached on disk."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks.bench_settings import BenchSettings
from benchmarks.records import Log
from benchmarks.report import middle, seconds_text, table, verdict

NAME = "startup"
TITLE = "Start-up, kernels cached on disk"
SIZE = 200
BARS = {"import bigsap": 1.0, "process has solved n = 200": 1.5}

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
    keys = [(NAME, "random", SIZE, seed, "bigsap", 1) for seed in range(settings.startup_seeds)]
    if all(log.has(*key) for key in keys):
        return
    _process()  # the first one compiles what is not on disk
    for key in keys:
        if log.has(*key):
            continue
        clock = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import numpy"], check=True)
        bare = time.perf_counter() - clock
        imported, solved, whole = _process()
        log.add(*key, bare_seconds=bare, import_seconds=imported, solve_seconds=solved, process_seconds=whole)


def _process() -> tuple[float, float, float]:
    clock = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    whole = time.perf_counter() - clock
    imported, solved = json.loads(done.stdout)
    return imported, solved, whole


def render(settings: BenchSettings, log: Log) -> str:
    """Medians, against the bars."""
    names = {
        "Python with numpy alone": "bare_seconds",
        "import bigsap": "import_seconds",
        "first solve, n = 200": "solve_seconds",
        "process has solved n = 200": "process_seconds",
    }
    rows = []
    for label, field in names.items():
        seconds = middle(log.values(field, experiment=NAME))
        bar = BARS.get(label)
        rows.append(
            [
                label,
                seconds_text(seconds),
                "-" if bar is None else f"{bar} s: {verdict(seconds, bar, at_most=True)}",
            ]
        )
    count = len(log.values("import_seconds", experiment=NAME))
    note = f"Medians of {count} processes; numpy's own import is not in that of bigsap."
    return f"{table(['what', 'seconds', 'bar'], rows)}\n\n{note}"
