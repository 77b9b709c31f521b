"""``python -m benchmarks``: the options of the benchmarks, and their translation into settings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsap.display.text import shown
from bigsap.errors import BigsapError, InputError, OptionError

if TYPE_CHECKING:
    from benchmarks.bench_settings import BenchSettings, Round

_SHARES = {"1": 1, "1/1": 1, "row": 0}


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    bench = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure BigSAP beside the other solvers and write a report."
    )
    add = bench.add_argument
    add("--quick", action="store_true", help="small sizes, under a minute: checks the harness")
    add("--only", nargs="+", metavar="NAME", help="experiments; default: all. 'list' names them")
    add(
        "--sizes",
        nargs="+",
        metavar="N",
        help="rows of a matrix: numbers, or A..B for sizes from A to B growing by sqrt(2)",
    )
    add("--classes", nargs="+", metavar="CLASS", help="of costs: the paper's, int0.1n, int1n, ...")
    add("--seeds", type=int, metavar="N", help="instances of a class and size")
    add("--methods", nargs="+", metavar="NAME", help="auto, ssp, compressed; default: auto ssp")
    add("--threads", nargs="+", type=int, metavar="N", help="default: 1 2")
    add(
        "--cache",
        nargs="+",
        metavar="SHARE",
        help="of the rows that the cache holds: 1/1, 1/4, 1/16, ..., row; default: these",
    )
    add("--devices", nargs="+", metavar="NAME", help="cpu, cuda, ...; default: cpu")
    add(
        "--peers",
        nargs="*",
        metavar="NAME",
        help="other solvers; default: all that are installed; none named: none",
    )
    add("--limit", type=float, metavar="S", help="seconds a solver gets for a matrix at most")
    add(
        "--patience",
        type=float,
        metavar="X",
        help="stop a peer at X times the best of its matrix (and at least 4 s); inf: never",
    )
    add("--out", type=Path, metavar="DIR", help="default bigsap-bench/{full,quick,chosen}")
    add("--report", action="store_true", help="measure nothing, write the report anew")
    add("--fresh", action="store_true", help="forget what was measured before")
    add("--stamp", action="store_true", help="put the date into the report")
    add(
        "--head",
        type=Path,
        metavar="FILE",
        help="Markdown to put before the report in --to DIR; default: HEAD.md there",
    )
    add("--to", type=Path, metavar="DIR", help="copy the report and its pictures here too")
    return bench


def sizes_of(texts: list[str]) -> tuple[int, ...]:
    """``["1000..4000", "9000"]`` -> 1000, 1414, 2000, 2828, 4000, 9000: ascending, once each.

    Raises OptionError for what is no size.
    """
    found: set[int] = set()
    for text in texts:
        first, dots, last = text.partition("..")
        try:
            low, high = int(first), int(last if dots else first)
        except ValueError:
            raise OptionError(f"--sizes: {text!r} is neither a number nor A..B") from None
        if not 2 <= low <= high:
            raise OptionError(f"--sizes: {text!r} must lie at 2 or above, and ascend")
        steps = (int(low * 2 ** (k / 2)) for k in range(200))
        found.update(n for n in steps if n <= high)
    return tuple(sorted(found))


def shares_of(texts: list[str]) -> tuple[int, ...]:
    """``["1/4", "row"]`` -> 4, 0. Raises OptionError for what is no share."""
    found = []
    for text in texts:
        one, slash, divisor = text.partition("/")
        if text in _SHARES:
            found.append(_SHARES[text])
        elif one == "1" and slash and divisor.isdecimal() and int(divisor):
            found.append(int(divisor))
        else:
            raise OptionError(f"--cache: {text!r} must be 1/1, 1/2, ..., or row")
    return tuple(dict.fromkeys(found))


def settings_of(args: argparse.Namespace) -> BenchSettings:
    """What the arguments ask for. Raises OptionError naming the option."""
    from benchmarks.bench_settings import ALL_CLASSES, QUICK, ROUNDS, BenchSettings
    from benchmarks.peers import PEERS, find
    from bigsap.strategies import METHODS

    given: dict[str, object] = dict(QUICK) if args.quick else {}
    methods = (*METHODS, "auto")
    if args.methods:
        given["methods"] = _some("--methods", args.methods, methods)
    if args.classes:
        given["classes"] = _some("--classes", args.classes, ALL_CLASSES)
    peers = tuple(dict.fromkeys(PEERS if args.peers is None else args.peers))
    for name in peers:
        try:
            find(name)
        except (KeyError, ImportError, AttributeError) as error:
            raise OptionError(f"--peers: {error.args[0]}") from error
    given["peers"] = peers
    if args.sizes:
        sizes = sizes_of(args.sizes)
        given |= dict.fromkeys(
            ("table1_sizes", "cached_sizes", "decay_sizes", "trees_sizes", "curve_sizes"), sizes
        )
        given |= {"paths_size": sizes[0], "memory_size": sizes[-1]}
        given |= {"threads_size": sizes[-1], "bandwidth_sizes": sizes[-1:]}
        given["outofcore_instances"] = (("rank1", sizes[0]),)
    if args.seeds is not None:
        if args.seeds < 1:
            raise OptionError(f"--seeds must be at least 1, got {args.seeds}")
        kinds = ("table1", "threads", "cached", "bandwidth", "memory", "startup")
        given |= {f"{kind}_seeds": args.seeds for kind in kinds}
    if args.sizes or args.seeds is not None:
        rounds = given.get("rounds", ROUNDS)
        given["rounds"] = _rounds(rounds, sizes_of(args.sizes or []), args.seeds)
    for name in ("limit", "patience"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            raise OptionError(f"--{name} must be above 0, got {value:g}")
    if args.threads:
        if min(args.threads) < 1:
            raise OptionError(f"--threads must be at least 1, got {min(args.threads)}")
        counts = tuple(dict.fromkeys(args.threads))
        given |= {"thread_counts": counts, "peers_threads": counts}
    if args.cache:
        given["shares"] = shares_of(args.cache)
    given |= {"devices": tuple(dict.fromkeys(args.devices or ["cpu"]))}
    given |= {k: getattr(args, k) for k in ("limit", "patience") if getattr(args, k) is not None}
    chosen = any((args.sizes, args.seeds, args.threads))
    # Bars are about the sizes, seeds and threads of the full run only.
    scale = "chosen" if chosen else "quick" if args.quick else "full"
    out = (args.out or Path("bigsap-bench") / scale).absolute()
    return BenchSettings(**{**{k: v for k, v in given.items() if v is not None}, "scale": scale, "out": out})  # type: ignore[arg-type]


def _rounds(usual: Any, sizes: tuple[int, ...], seeds: int | None) -> tuple[Round, ...]:
    """One round of the chosen sizes, or the usual ones; with as many seeds as chosen."""
    from benchmarks.bench_settings import Round

    if sizes:
        return (Round(sizes=sizes, seeds=seeds or max(part.seeds for part in usual)),)
    return tuple(replace(part, seeds=seeds or part.seeds) for part in usual)


def _some(option: str, given: list[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """The given names, once each. Raises OptionError for an unknown one."""
    for name in given:
        if name not in known:
            raise OptionError(f"{option}: no {name!r}; there are {', '.join(known)}")
    return tuple(dict.fromkeys(given))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write; 1 where that is refused, with the reason on stderr."""
    try:
        _bench(parser().parse_args(argv))
    except (BigsapError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _bench(args: argparse.Namespace) -> None:
    from benchmarks import run
    from benchmarks.records import StaleError

    if args.only == ["list"]:
        for name, module in run.EXPERIMENTS.items():
            print(f"{name:10} {module.TITLE}")
        return
    for name in args.only or []:
        if name not in run.EXPERIMENTS:
            raise OptionError(f"--only: no {name!r}; there are {', '.join(run.EXPERIMENTS)}")
    settings = settings_of(args)
    head = args.head or (args.to and args.to / "HEAD.md")
    if head and not (args.to and head.is_file()):
        raise OptionError(f"--head: no file {head}" if args.to else "--head needs --to DIR")
    try:
        if args.report:
            text = run.report_only(settings, stamp=args.stamp)
        else:
            text = run.run(settings, args.only, fresh=args.fresh, stamp=args.stamp)
    except StaleError as error:
        raise InputError(str(error)) from error
    print(text)
    report, page = settings.out / run.REPORT, settings.out / run.PAGE
    print(shown(f"wrote {report} and, for the browser, {page}"))
    if args.to is not None:
        print(shown(f"wrote {run.publish(settings, head, args.to, stamp=args.stamp)}"))


if __name__ == "__main__":
    sys.exit(main())
