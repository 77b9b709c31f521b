"""Run the benchmarks and write the report.

    python tests/bench/run.py [--quick] [--only table1 peers ...] [--out DIR]

Measurements go to DIR/runs.jsonl as they are made; a second call runs only what is
missing. DIR/RESULTS.md is the report.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from bench import (
    bandwidth,
    demo,
    machine,
    memory,
    outofcore,
    startup,
    table1,
    threads,
    versus,
)
from bench.peers import PEERS, find
from bench.records import Log, StaleError
from bench.settings import QUICK, Settings
from bigsap.methods import METHODS

EXPERIMENTS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (table1, startup, memory, versus, threads, bandwidth, outofcore, demo)
}
LOG, REPORT = "runs.jsonl", "RESULTS.md"
_OUT = machine.ROOT / ".build" / "bench"


def parser() -> argparse.ArgumentParser:
    methods = (*METHODS, "auto")
    found = argparse.ArgumentParser(prog="run.py", description=__doc__.partition("\n")[0])
    found.add_argument("--quick", action="store_true", help="small sizes: checks the harness")
    found.add_argument("--only", nargs="+", metavar="NAME", choices=EXPERIMENTS, default=[])
    found.add_argument("--out", type=Path, metavar="DIR", help="default .build/bench/{full,quick}")
    found.add_argument(
        "--method", nargs="+", metavar="NAME", choices=methods,
        help=f"BigSAP's methods to run against the peers, of {', '.join(methods)}",
    )  # fmt: skip
    found.add_argument(
        "--peer", nargs="+", metavar="NAME", default=list(PEERS),
        help="the other solvers (default: all that are installed), or module:attribute",
    )  # fmt: skip
    found.add_argument("--limit", type=float, metavar="S", help="seconds a run may take at most")
    found.add_argument(
        "--patience", type=float, metavar="X",
        help="stop a peer at X times the best of its matrix (and at least 8 s); inf: never",
    )  # fmt: skip
    found.add_argument("--fresh", action="store_true", help="forget what was measured before")
    found.add_argument("--report", action="store_true", help="measure nothing, only report")
    found.add_argument("--stamp", action="store_true", help="put the date into the report")
    return found


def default_methods() -> tuple[str, ...]:
    """Every method there is, and "auto" where it has a choice."""
    return (*METHODS, "auto") if len(METHODS) > 1 else tuple(METHODS)


def settings_of(args: argparse.Namespace) -> Settings:
    scale = "quick" if args.quick else "full"
    chosen = {"limit": args.limit, "patience": args.patience}
    methods = tuple(dict.fromkeys(args.method)) if args.method else default_methods()
    return Settings(
        **{
            **(QUICK if args.quick else {}),
            **{name: value for name, value in chosen.items() if value is not None},
            "out": (args.out or _OUT / scale).absolute(),
            "methods": methods,
            "peers": tuple(dict.fromkeys(args.peer)),
        }
    )


def measure(settings: Settings, names: Sequence[str], log: Log) -> None:
    """Run what is missing of these experiments, with a look at the noise in between."""
    machine.probe(log)
    for name in names:
        clock = time.perf_counter()
        print(f"==> {name}", flush=True)
        EXPERIMENTS[name].run(settings, log)
        machine.probe(log)
        print(f"    {time.perf_counter() - clock:.0f} s", flush=True)


def report(settings: Settings, log: Log, *, stamp: bool = False) -> str:
    """The whole report as Markdown; experiments without a record are left out."""
    parts = ["# Measured", "\n".join(machine.lines(log))]
    if stamp:
        parts[1] += f"\n- date: {datetime.date.today().isoformat()}"
    for name, module in EXPERIMENTS.items():
        if any(log.of(experiment=name)):
            parts += [f"## {module.TITLE}", module.render(settings, log)]
    return "\n\n".join(parts) + "\n"


def main(argv: Sequence[str] | None = None, settings: Settings | None = None) -> int:
    """settings: in place of those that the arguments name, for tests."""
    args = parser().parse_args(argv)
    settings = settings or settings_of(args)
    path = settings.out / LOG
    if args.report:
        if not path.exists():
            print(f"{path}: nothing was measured yet", file=sys.stderr)
            return 1
        log = Log.read(path)
    else:
        settings.out.mkdir(parents=True, exist_ok=True)
        if args.fresh:
            path.unlink(missing_ok=True)
        peers = {name: find(name).distribution for name in settings.peers}
        try:
            log = Log(path, machine.header(peers, settings.scale))
        except StaleError as error:
            print(error, file=sys.stderr)
            return 1
        measure(settings, args.only or list(EXPERIMENTS), log)
    text = report(settings, log, stamp=args.stamp)
    (settings.out / REPORT).write_text(text)
    print(text)
    print(f"wrote {settings.out / REPORT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
