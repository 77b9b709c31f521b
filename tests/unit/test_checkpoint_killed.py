"""Solves that are killed at any moment, and continued."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import bigsap
from bigsap import checkpoint
from gate import SUPPORT
from instances import CLASSES, points_of
from killed import KILLED, same

ROOT = Path(__file__).parents[2]
VICTIM = """
import sys, time
import bigsap
from bigsap.engine.lists import list_engine as compressed
from test_checkpoint_killed import PROBLEMS

compressed._SLICE_SECONDS, compressed._FIRST_ENTRIES = 0.001, 500  # often at the disk
name, path, out, threads, victim = sys.argv[1:]
cost, options, _ = PROBLEMS[name]()
options.setdefault("method", "ssp")

def tick(state):
    print("tick", flush=True)
    time.sleep(0.002)  # the killer takes as long

options |= {"threads": int(threads)}
if victim == "True":
    options |= {"callback": tick, "callback_every": 0, "checkpoint_every": 0}
print("ready", flush=True)
try:
    res = bigsap.resume(path, cost, **options)
except FileNotFoundError:
    res = bigsap.solve(cost, checkpoint=path, **options)
res.save(out)
"""


def _points():
    x, y = points_of("disjoint", 1500, seed=3)
    return bigsap.points(x, y), {"cache": 200 * 1500 * 8}, 25


def _rows():
    cost = CLASSES["disjoint"](150, seed=4)[:120].copy()
    source = bigsap.from_function(lambda i: cost[i], cost.shape, kind="row", compiled=False)
    return source, {"cache": 20 * 150 * 8}, 900


def _tall_integers():
    """In a mapped file, which is not turned: virtual columns."""
    cost = CLASSES["int10n"](1000, seed=5)[:, :800]
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, cost.dtype, "w+", shape=cost.shape)
    mapped[:] = cost
    return mapped, {"maximize": True}, 6


def _lists_of_points():
    x, y = points_of("disjoint", 3000, seed=3)
    return bigsap.points(x, y), {"method": "auto"}, 90


def _lists_of_an_array():
    return CLASSES["disjoint"](1600, seed=4), {"method": "compressed"}, 60


def _lists_of_rows():
    """Rows through Python: many rounds of searches and evaluations."""
    cost = CLASSES["geometric"](400, seed=4)
    source = bigsap.from_function(lambda i: cost[i], cost.shape, kind="row", compiled=False)
    return source, {"method": "compressed", "cache": 8 * 400}, 40


def _lists_of_integers():
    """All lists too short for the ties."""
    cost = CLASSES["int0.1n"](900, seed=5)[:, :750].copy()
    return cost, {"method": "compressed", "maximize": True}, 30


#: Costs, options, and how many ticks to wait at most before a kill.
PROBLEMS = {
    "points": _points,
    "rows": _rows,
    "tall": _tall_integers,
    "lists points": _lists_of_points,
    "lists array": _lists_of_an_array,
    "lists rows": _lists_of_rows,
    "lists integers": _lists_of_integers,
}


@pytest.mark.skipif(os.name == "nt", reason="signals as on POSIX")
@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_killed_at_random_moments(name, tmp_path):
    cost, options, patience = PROBLEMS[name]()
    options.setdefault("method", "ssp")
    whole = bigsap.solve(cost, threads=1, **options)
    path, out = tmp_path / "solve.ckpt", tmp_path / "out.npz"
    script = tmp_path / "victim.py"
    script.write_text(textwrap.dedent(VICTIM))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, SUPPORT, Path(__file__).parent))),
    }
    moment = random.Random(f"kill {name}")
    kills = in_search = tries = 0
    while not out.exists():
        tries += 1
        threads = str(1 + kills % 2)
        # Moments are counted in ticks, which on a busy machine may all fall before the search:
        # so later and later ones, until one does not.
        victim = kills < 3 or (in_search == 0 and tries < 20)
        with subprocess.Popen(
            [sys.executable, str(script), name, str(path), str(out), threads, str(victim)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        ) as child:
            assert child.stdout.readline().strip() == "ready", child.stderr.read()
            if victim:
                for _ in range(moment.randrange(patience * max(1, tries - 3))):
                    if not child.stdout.readline():
                        break
                time.sleep(moment.random() * 0.01)
                child.kill()
            _, errors = child.communicate(timeout=200)
            if child.returncode == KILLED:
                kills += 1
                if path.exists():
                    saved = checkpoint.read(path)  # whole, whenever the kill came
                    in_search += bool(saved.snapshot) and not saved.snapshot["done"]
            else:
                assert child.returncode == 0, errors
                if in_search == 0 and tries < 20:  # over before the kill: from the beginning
                    out.unlink()
                    path.unlink(missing_ok=True)
    result = bigsap.Result.load(out)
    print(f"{name}: {kills} kills, {in_search} of them with a search under way")
    assert kills >= 3
    assert in_search >= 1
    assert same(result, whole)
    for counter in ("rows_scanned", "pairs_evaluated", "nit"):
        if name.startswith("lists"):
            assert {**result.stats, "nit": result.nit}[counter] == {**whole.stats, "nit": whole.nit}[counter]
    assert result.success
    result.verify(cost)
