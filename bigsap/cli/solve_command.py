"""The command ``bigsap solve``, and the options that define the problem."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bigsap
from bigsap.cli.common import (
    COSTS_HELP,
    OUTPUT_HELP,
    AddCommand,
    ExitStatus,
    add_output_flags,
    check_output,
    exit_of,
    note,
    on_terminal,
    print_json,
    tell,
)
from bigsap.display.text import result_record, result_text, shown
from bigsap.errors import InputError, OptionError

if TYPE_CHECKING:
    from bigsap.result import Result


def add_command(command: AddCommand) -> None:
    """Add ``solve`` to the command line."""
    solve = command("solve", _solve, "find an optimal assignment and prove it")
    solve.add_argument("costs", metavar="COSTS", help=COSTS_HELP)
    solve.add_argument("--maximize", action="store_true", help="largest total instead of smallest")
    solve.add_argument(
        "--method", choices=("auto", "ssp", "compressed", "hungarian", "auction"), default="auto"
    )
    solve.add_argument(
        "--variant",
        choices=("auto", "classical", "tree", "plain", "scaled"),
        default="auto",
        help="classical and tree are of hungarian, plain and scaled of auction",
    )
    solve.add_argument("--no-epsilon", action="store_true", help="plain successive shortest paths, one phase")
    solve.add_argument(
        "--start",
        choices=("auto", "levels", "estimate", "none"),
        default="auto",
        help="first prices; auto decides by a sample",
    )
    add_problem_flags(solve)
    solve.add_argument(
        "--warm-start",
        metavar="FILE",
        help="where to start: a result (.npz of solve -o), or prices of the columns (.npy)",
    )
    solve.add_argument(
        "--device",
        metavar="NAME",
        default="cpu",
        help="cpu, cuda, cuda:1, auto, or several, as cuda:0,cuda:1; default cpu",
    )
    solve.add_argument("--threads", type=int, metavar="N", help="default: all this process may use")
    solve.add_argument("--cache", metavar="SIZE", help="memory for rows, for instance 4GiB")
    solve.add_argument("--policy", choices=("auto", "slru", "lfu"), default="auto", help="which rows to keep")
    solve.add_argument("--memory-limit", metavar="SIZE", help="memory for the whole solve")
    solve.add_argument(
        "--time-limit", type=float, metavar="S", help="seconds after which to return the best so far"
    )
    solve.add_argument(
        "--gap", type=float, default=0.0, metavar="G", help="stop when proved to be this close"
    )
    solve.add_argument("--checkpoint", metavar="FILE", help="where to keep what --resume continues from")
    solve.add_argument(
        "--checkpoint-every", type=float, default=60.0, metavar="S", help="seconds; default 60"
    )
    solve.add_argument(
        "--resume", action="store_true", help="continue from --checkpoint FILE where it exists"
    )
    solve.add_argument("--seed", type=int, default=0, metavar="N")
    solve.add_argument("--no-certify", action="store_true", help="skip the final pass that proves the result")
    solve.add_argument(
        "--certify-pairs",
        action="store_true",
        help="prove it by every pair, also where bounds of the costs would do",
    )
    solve.add_argument("-o", "--output", metavar="FILE.npz", help=OUTPUT_HELP)
    add_output_flags(solve)
    solve.add_argument("--quiet", action="store_true", help="no progress bar, no notes")


def _solve(args: argparse.Namespace) -> ExitStatus:
    from bigsap.cli.costspec import open_costs

    output = None if args.output is None else check_output(args.output)
    cache = None
    if args.cache is not None or args.policy != "auto":
        cache = bigsap.RowCache(bytes=args.cache, policy=args.policy)
    if args.resume and args.checkpoint is None:
        raise InputError("--resume needs --checkpoint FILE, the file to continue from")
    if args.no_certify and args.certify_pairs:
        raise InputError("--no-certify and --certify-pairs exclude each other")
    # For options that a checkpoint records, pass only those that were given.
    given = {} if args.dtype is None else {"dtype": args.dtype}
    solve: Callable[..., Result] = bigsap.solve
    if args.resume and Path(args.checkpoint).exists():
        solve = partial(bigsap.resume, args.checkpoint)
    elif args.resume:
        text = f"there is no checkpoint {args.checkpoint} yet: starting from the beginning"
        tell(f"bigsap: note: {shown(text)}")
    result = solve(
        open_costs(args.costs),
        maximize=args.maximize,
        method=args.method,
        variant=args.variant,
        epsilon=not args.no_epsilon,
        start=args.start,
        gap=args.gap,
        checkpoint=args.checkpoint,
        checkpoint_every=args.checkpoint_every,
        cache=cache,
        memory_limit=args.memory_limit,
        threads=args.threads,
        time_limit=args.time_limit,
        progress=not args.quiet and on_terminal(),
        certify="pairs" if args.certify_pairs else not args.no_certify,
        seed=args.seed,
        device=args.device.split(",") if "," in args.device else args.device,
        unassigned_cost=unassigned_cost_of(args.unassigned_cost),
        warm_start=warm_start_of(args.warm_start),
        **given,
    )
    if output is not None:
        result.save(output)
    code = exit_of(result)
    if args.json:
        record = result_record(result)
        record["output"] = None if output is None else str(output)
        record["exit_code"] = int(code)
        print_json(record)
        return code
    print(result_text(result))
    if output is not None:
        note(args, f"saved to {output}")
    elif result.fun is not None:
        note(args, "the assignment itself was not saved; -o FILE.npz does that")
    return code


def add_problem_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options of the problem, which are given again to verify its result."""
    parser.add_argument(
        "--unassigned-cost",
        metavar="COST",
        help="price at which a row may stay unassigned: a number, or a .npy file of one a row",
    )
    parser.add_argument("--dtype", metavar="DTYPE", help="read the costs as float64, float32, int64, ...")


def number_or_file(option: str, text: str) -> int | float | Path:
    """Return an option's number, or the ``.npy`` file that it names. Raises OptionError."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    file = Path(text)
    if not file.is_file():
        raise OptionError(f"{option} {text}: is neither a number nor a .npy file")
    return file


def unassigned_cost_of(text: str | None) -> Any:
    """Return ``unassigned_cost=`` of ``bigsap.solve``."""
    from bigsap.sources.spec_files import load_npy

    if text is None:
        return None
    found = number_or_file("--unassigned-cost", text)
    return load_npy(found) if isinstance(found, Path) else found


def warm_start_of(text: str | None) -> Any:
    """Return ``warm_start=`` of ``bigsap.solve``: a saved result, or prices."""
    from bigsap.sources.spec_files import load_npy

    if text is None:
        return None
    file = Path(text)
    if not file.is_file():
        raise InputError(f"--warm-start {text}: no such file")
    return bigsap.Result.load(file) if file.suffix == ".npz" else load_npy(file)
