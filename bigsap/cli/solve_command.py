"""The command ``bigsap solve``, and the options that define the problem."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import bigsap
from bigsap.cli.common import (
    COSTS_HELP,
    OUTPUT_HELP,
    AddCommand,
    ExitStatus,
    add_checkpoint_flags,
    add_output_flags,
    check_output,
    continues,
    exit_of,
    note,
    on_terminal,
    print_json,
    save_result,
)
from bigsap.cli.option_flags import add_solve_options, given_options, warm_start_of
from bigsap.display.text import result_record, result_text
from bigsap.errors import InputError

if TYPE_CHECKING:
    from bigsap.result import Result


def add_command(command: AddCommand) -> None:
    """Add ``solve`` to the command line."""
    solve = command("solve", _solve, "find an optimal assignment and prove it")
    solve.add_argument("costs", metavar="COSTS", help=COSTS_HELP)
    add_solve_options(solve)
    solve.add_argument(
        "--warm-start",
        metavar="FILE",
        help="where to start: a result (.npz of solve -o), or prices of the columns (.npy)",
    )
    solve.add_argument("--policy", choices=("auto", "slru", "lfu"), default="auto", help="which rows to keep")
    add_checkpoint_flags(solve)
    solve.add_argument("--no-certify", action="store_true", help="skip the final pass that proves the result")
    solve.add_argument(
        "--certify-pairs",
        action="store_true",
        help="prove it by every pair, also where bounds of the costs would do",
    )
    solve.add_argument("-o", "--output", metavar="FILE", help=OUTPUT_HELP)
    add_output_flags(solve)
    solve.add_argument("--quiet", action="store_true", help="no progress bar, no notes")


def _solve(args: argparse.Namespace) -> ExitStatus:
    from bigsap.cli.costspec import open_problem

    output = None if args.output is None else check_output(args.output, args.costs)
    goes_on = continues(args, output)
    if args.no_certify and args.certify_pairs:
        raise InputError("--no-certify and --certify-pairs exclude each other")
    # Only what was given: a resumed solve takes the others from its checkpoint.
    costs, asked = open_problem(args.costs, args.maximize)
    given = {**asked, **given_options(args)}
    if args.certify_pairs or args.no_certify:
        given["certify"] = "pairs" if args.certify_pairs else False
    if args.policy != "auto":
        given["cache"] = bigsap.RowCache(bytes=args.cache, policy=args.policy)
    solve: Callable[..., Result] = bigsap.solve
    if goes_on:
        solve = partial(bigsap.resume, args.checkpoint)
    result = solve(
        costs,
        checkpoint=args.checkpoint,
        progress=not args.quiet and on_terminal(),
        warm_start=warm_start_of(args.warm_start),
        **given,
    )
    if output is not None:
        save_result(result, output)
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
