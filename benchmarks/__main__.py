"""``python -m benchmarks``: the options, and their translation into settings."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import run
from benchmarks.bench_settings import ALL_CLASSES, QUICK, ROUNDS, BenchSettings, Round
from benchmarks.peers import PEERS, find
from benchmarks.records import StaleError
from bigsap.errors import BigsapError
from bigsap.strategies import METHODS

_SIZES = ["table1_sizes", "cached_sizes", "decay_sizes", "trees_sizes", "curve_sizes"]
_SEEDS = ["table1", "threads", "cached", "bandwidth", "memory", "startup"]


def _size(text: str) -> list[int]:
    """``1000..4000`` -> 1000, 1414, 2000, 2828, 4000."""
    first, dots, last = text.partition("..")
    low, high = int(first), int(last if dots else first)
    if not 2 <= low <= high:
        raise argparse.ArgumentTypeError(f"{text!r} must lie at 2 or above, and ascend")
    return [n for n in (int(low * 2 ** (k / 2)) for k in range(200)) if n <= high]


def _share(text: str) -> int:
    """``1/4`` -> 4; ``row`` -> 0."""
    divisor = text.removeprefix("1/")
    if text != "row" and not (divisor.isdecimal() and int(divisor) and text != divisor):
        raise argparse.ArgumentTypeError(f"{text!r} must be 1/1, 1/2, ..., or row")
    return 0 if text == "row" else int(divisor)


def _peer(text: str) -> str:
    try:
        find(text)
    except (KeyError, ImportError, AttributeError) as error:
        raise argparse.ArgumentTypeError(str(error.args[0])) from error
    return text


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)


def _positive(text: str) -> float:
    if not float(text) > 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return float(text)


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure BigSAP beside the other solvers and write reports.",
        epilog="Experiments: "
        + "; ".join(f"{name}: {module.TITLE}" for name, module in run.EXPERIMENTS.items()),
    )
    add = found.add_argument
    today, names = datetime.date.today().isoformat(), list(run.EXPERIMENTS)
    sizes = "rows of a matrix: numbers, or A..B for sizes from A to B growing by sqrt(2)"
    shares = "of the rows that the cache holds: 1/1, 1/4, ..., row"
    patience = "stop a peer at X times the best of its matrix (and at least 4 s); inf: never"
    peers = "other solvers; default: all that are installed; none named: none"
    add("--quick", action="store_true", help="small sizes, some two minutes: checks the harness")
    add("--only", nargs="+", metavar="NAME", choices=names, help="experiments; default: all")
    add("--sizes", nargs="+", metavar="N", type=_size, help=sizes)
    add("--classes", nargs="+", metavar="CLASS", choices=ALL_CLASSES, help="of costs")
    add("--seeds", type=_count, metavar="N", help="instances of a class and size")
    add("--methods", nargs="+", metavar="NAME", choices=(*METHODS, "auto"), help="of BigSAP")
    add("--threads", nargs="+", type=_count, metavar="N", help="default: 1 2")
    add("--cache", nargs="+", metavar="SHARE", type=_share, help=shares)
    add("--devices", nargs="+", metavar="NAME", default=["cpu"], help="cpu, cuda, ...")
    add("--peers", nargs="*", metavar="NAME", type=_peer, default=list(PEERS), help=peers)
    add("--limit", type=_positive, metavar="S", help="most seconds of a solver for a matrix")
    add("--patience", type=_positive, metavar="X", help=patience)
    add("--out", type=Path, metavar="DIR", help="default bigsap-bench/{full,quick,chosen}")
    add("--report", action="store_true", help="measure nothing, write the reports anew")
    add("--fresh", action="store_true", help="forget what was measured before")
    add("--stamp", nargs="?", const=today, metavar="DAY", help="name the day (today) in reports")
    add("--to", type=Path, metavar="DIR", help="write the reports and the log here too")
    return found


def settings_of(args: argparse.Namespace) -> BenchSettings:
    """What the arguments ask for."""
    given: dict[str, Any] = dict(QUICK) if args.quick else {}
    for name in ("classes", "methods", "devices", "peers"):
        if getattr(args, name) is not None:
            given[name] = tuple(dict.fromkeys(getattr(args, name)))
    given |= {k: getattr(args, k) for k in ("limit", "patience") if getattr(args, k) is not None}
    if args.cache:
        given["shares"] = tuple(dict.fromkeys(args.cache))
    if args.threads:
        given |= dict.fromkeys(("thread_counts", "peers_threads"), tuple(dict.fromkeys(args.threads)))
    rounds = given.get("rounds", ROUNDS)
    if args.sizes:
        sizes = tuple(sorted({n for some in args.sizes for n in some}))
        given |= dict.fromkeys(_SIZES, sizes)
        given |= {"paths_size": sizes[0], "memory_size": sizes[-1], "threads_size": sizes[-1]}
        given |= {"bandwidth_sizes": sizes[-1:], "outofcore_instances": (("rank1", sizes[0]),)}
        given |= {"sparse_sizes": sizes, "sparse_infeasible": sizes, "sparse_large": ()}
        rounds = (Round(sizes=sizes, seeds=max(part.seeds for part in rounds)),)
    if args.seeds:
        given |= {f"{kind}_seeds": args.seeds for kind in _SEEDS}
        rounds = tuple(replace(part, seeds=args.seeds) for part in rounds)
    # Bars are about the sizes, seeds and threads of the full run only.
    chosen = any((args.sizes, args.seeds, args.threads))
    scale = "chosen" if chosen else "quick" if args.quick else "full"
    out = (args.out or Path("bigsap-bench") / scale).absolute()
    return BenchSettings(**{**given, "rounds": rounds, "scale": scale, "out": out})


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write; 1 where that is refused, with the reason on stderr."""
    args = parser().parse_args(argv)
    settings = settings_of(args)
    try:
        log = run.known(settings) if args.report else run.measured(settings, args.only, fresh=args.fresh)
        for folder in filter(None, (settings.out, args.to)):
            report = run.write(log, folder, args.stamp)
            print(f"wrote {report} and, for the browser, {report.parent / run.PAGE}")
    except (BigsapError, StaleError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
