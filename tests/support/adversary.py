"""A search for wrong answers, as long as one likes: ``python tests/support/adversary.py --minutes 60``.

Problems of ``adversarial.py`` and ``adversarial_inputs.py`` are solved in each place and judged in exact
arithmetic. A line a fault, with the name of the problem: ``python tests/support/adversary.py --again
NAME`` solves it once more. At the end counts: problems, results judged, wrong optima, false bounds
(false duals, gaps and proofs among them), crashes (errors, processes that died or hung), other
faults, solves refused with a reason, solves that end ``imprecise`` (and of these, whose assignment
is not optimal).

The exit status is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import multiprocessing.connection
import os
import queue
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import adversarial_inputs
from adversarial import PLACES as ORDINARY
from adversarial import Case, draw
from adversarial_ways import Outcome, place_named, tried

PLACES = (*ORDINARY, adversarial_inputs.PLACE)
#: A card is asked for by name: few machines have one.
DEFAULT = tuple(place for place in PLACES if place != "card")
#: Shares of the time.
SHARES = {"host": 7, "device": 1, "cluster": 1, "service": 1, "inputs": 3, "card": 3}
#: A problem that takes longer has hung.
HUNG_SECONDS = 900.0
#: What is still at work so long after the end is named and given up.
_GRACE_SECONDS = 45.0
_START = 1.0


def search(workers: int, places: tuple[str, ...], given: Any, seconds: float, said: Any, at: Any) -> None:
    """Every so-manyth problem of each place, until the time is over.

    at: the place at work (-1: none), since when, and the number of each place's next problem.
    """
    os.environ["BIGSAP_QUIET"] = "1"
    with ExitStack() as stack, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        opened = {p: stack.enter_context(place_named(p, folder)) for p in places}
        end = time.monotonic() + seconds
        spent = dict.fromkeys(places, 0.0)
        while time.monotonic() < end:
            places = tuple(p for p in places if at[2 + PLACES.index(p)] < given.first + given.problems)
            if not places:
                break
            place = min(places, key=lambda p: spent[p] / SHARES[p])
            began = time.monotonic()
            which = PLACES.index(place)
            number = at[2 + which]
            with at.get_lock():
                at[0], at[1], at[2 + which] = which, int(time.time()), number + workers
            case = drawn(given.seed, number, place, folder, given)
            said.put((str(case), case.name, tried(case, opened[place], folder, adversarial_inputs.WAYS)))
            spent[place] += time.monotonic() - began
        at[0] = -1


def drawn(seed: int, number: int, place: str, folder: Path, given: argparse.Namespace) -> Case:
    """A problem of a place."""
    if place == adversarial_inputs.PLACE:
        return adversarial_inputs.draw(seed, number, given.most)
    return draw(seed, number, place, folder, given.most, given.forced)


class Counts:
    """What was found so far."""

    def __init__(self) -> None:
        self.of: collections.Counter[str] = collections.Counter()
        self.faulty = 0

    def add(self, told: str, outcome: Outcome) -> None:
        """One problem; its faults are printed."""
        self.of["problems"] += 1
        self.of["results"] += outcome.results
        self.of["imprecise"] += outcome.imprecise
        self.of["off"] += outcome.off
        self.of["refused"] += bool(outcome.refused)
        for fault in outcome.faults:
            self.of[group(fault)] += 1
        if outcome.faults:
            self.faulty += 1
            print(f"{told}\n    " + "\n    ".join(dict.fromkeys(outcome.faults)), flush=True)

    def __str__(self) -> str:
        names = (
            "problems",
            "results",
            "wrong optima",
            "false bounds",
            "crashes",
            "others",
            "refused",
            "imprecise",
        )
        told = ", ".join(f"{self.of[name]} {name}" for name in names)
        return f"{told} ({self.of['off']} with an assignment that is not optimal)"


def group(fault: str) -> str:
    """What the summary counts a fault as."""
    kind = fault.split(":")[0]
    if kind == "wrong optimum":
        return "wrong optima"
    if kind.startswith("false"):
        return "false bounds"
    return "crashes" if kind == "crash" else "others"


def run(given: argparse.Namespace) -> int:
    """Search with several processes; the exit status."""
    context = multiprocessing.get_context("spawn")
    said, counts = context.Queue(), Counts()
    end = time.monotonic() + 60 * given.minutes
    started: dict[int, tuple[Any, Any]] = {}

    def start(worker: int, numbers: list[int]) -> None:
        at = context.Array("q", [-1, 0, *numbers])
        left = end - time.monotonic()
        process = context.Process(target=search, args=(given.processes, given.places, given, left, said, at))
        process.start()
        started[worker] = process, at

    for worker in range(given.processes):
        start(worker, [given.first + worker] * len(PLACES))
    while started or not said.empty():
        try:
            told, _, outcome = said.get(timeout=_START)
            counts.add(told, outcome)
        except queue.Empty:
            pass
        for worker, (process, at) in list(started.items()):
            place, since, *numbers = at[:]
            hung = place >= 0 and time.time() - since > HUNG_SECONDS
            late = time.monotonic() > end + _GRACE_SECONDS
            if process.is_alive() and not hung and not late:
                continue
            given_up = late and process.is_alive()
            if process.is_alive():
                process.kill()
            process.join()
            del started[worker]
            if given_up:
                what = "closing its places"
                if place >= 0:
                    what = f"{given.seed}:{numbers[place] - given.processes}:{PLACES[place]}"
                print(f"given up after {time.time() - since:.0f} s: {what}", flush=True)
            elif process.exitcode:
                what = "hangs" if hung else f"the process ended with {process.exitcode}"
                name = "before its first problem"
                if place >= 0:
                    number = numbers[place] - given.processes
                    name = f"{given.seed}:{number}:{PLACES[place]}"
                counts.add(name, Outcome([f"crash: {what}"]))
                if time.monotonic() < end and place >= 0:
                    start(worker, numbers)
    print(counts)
    return 1 if counts.faulty else 0


def again(name: str, given: argparse.Namespace) -> int:
    """One problem, with what is known of it."""
    seed, number, place = name.split(":")
    with tempfile.TemporaryDirectory() as folder, place_named(place, Path(folder)) as where:
        case = drawn(int(seed), int(number), place, Path(folder), given)
        print(case)
        if given.save:
            np.save(given.save, case.matrix)
        outcome = tried(case, where, Path(folder), adversarial_inputs.WAYS)
        print(outcome)
    return 1 if outcome.faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first problem")
    parser.add_argument("--places", default=",".join(DEFAULT), help="of " + ", ".join(PLACES))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--most", type=int, default=2500, help="rows or columns at most")
    parser.add_argument("--forced", action="store_true", help="forced pairs and faulty readings")
    parser.add_argument("--problems", type=int, default=10**9, help="in each place at most")
    parser.add_argument("--again", metavar="NAME", help="solve one problem once more")
    parser.add_argument("--save", metavar="FILE", help="with --again: its costs, as .npy")
    given = parser.parse_args()
    given.places = tuple(given.places.split(","))
    if set(given.places) - set(PLACES):
        parser.error(f"--places: of {', '.join(PLACES)}")
    return again(given.again, given) if given.again else run(given)


if __name__ == "__main__":
    sys.exit(main())
