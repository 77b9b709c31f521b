"""The command ``bigsap certify``: how far any program's assignment is from the optimum."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from bigsap.cli.common import COSTS_HELP, AddCommand, ExitStatus, add_output_flags, print_json
from bigsap.cli.option_flags import add_problem_options, given_options
from bigsap.display.text import align, bound_text, gap_text, number
from bigsap.errors import InputError
from bigsap.option_table import BY_NAME

ASSIGNMENT_HELP = "the column of each row (.npy, -1 for none), a plan (.npy, n x m), or a result (.npz)"


def add_command(command: AddCommand) -> None:
    """Add ``certify`` to the command line."""
    parser = command("certify", _certify, "prove how far an assignment is from the optimum")
    parser.add_argument("costs", metavar="COSTS", help=COSTS_HELP)
    parser.add_argument("assignment", metavar="ASSIGNMENT", help=ASSIGNMENT_HELP)
    parser.add_argument(
        "--maximize", action="store_const", const=True, help="largest total instead of smallest"
    )
    parser.add_argument(
        "--prices",
        metavar="FILE",
        help="prices of the columns (.npy), or a result (.npz); without them the problem is solved",
    )
    add_problem_options(parser, "capacity")
    parser.add_argument("--threads", type=int, metavar="N", help="default: all this process may use")
    parser.add_argument("--time-limit", type=float, metavar="S", help="of the solve without --prices")
    parser.add_argument(
        "--pairs", action="store_true", help="look at every pair, also where bounds of the costs would do"
    )
    add_output_flags(parser)


def _certify(args: argparse.Namespace) -> ExitStatus:
    from bigsap.cli.costspec import open_problem

    v = None if args.prices is None else read_assignment(args.prices)
    if isinstance(v, bigsap.Result) and np.isnan(v.v).any():
        raise InputError(f"--prices {args.prices}: the result has no prices")
    costs, asked = open_problem(args.costs, args.maximize)
    # Of a request's options those matter that have a flag here, and those that ``certify`` refuses.
    if asked.get("objective") == BY_NAME["objective"].default:
        del asked["objective"]
    wanted = (*vars(args), "objective", "demand")
    given = {name: asked[name] for name in asked if name in wanted} | given_options(args)
    if v is not None:  # one pass, no solve
        given.pop("time_limit", None)
    chosen = read_assignment(args.assignment)
    columns = chosen.col4row if isinstance(chosen, bigsap.Result) else chosen
    _check_form(args.assignment, columns, costs.shape)
    _check_prices(args.prices, v.v if isinstance(v, bigsap.Result) else v, costs.shape[1])
    certificate = bigsap.certify(costs, chosen, v, pairs=args.pairs, **given)
    code = ExitStatus.OK if certificate.optimal else ExitStatus.IMPRECISE
    if args.json:
        names = ("optimal", "fun", "bound", "gap", "worst_row", "worst_violation", "pairs", "by")
        print_json({**{name: getattr(certificate, name) for name in names}, "exit_code": int(code)})
        return code
    assert certificate.fun is not None
    assert certificate.gap is not None
    others = ", the others excluded by bounds" if certificate.by == "bounds" else ""
    lines = [
        ("optimal", "yes, proved" if certificate.optimal else "not proved"),
        ("cost", number(certificate.fun)),
        ("bound", bound_text(certificate.bound, certificate.fun, above=bool(given.get("maximize")))),
        ("gap", gap_text(certificate.gap, certificate.fun)),
        ("pairs checked", f"{certificate.pairs:,}{others}"),
    ]
    print(align(lines))
    return code


def _check_form(name: str, found: Any, shape: tuple[int, int]) -> None:
    """Raise InputError for a file whose array cannot be an assignment, whatever is in it."""
    if not isinstance(found, np.ndarray) or (found.shape == shape and found.dtype.kind in "biuf"):
        return
    n, m = shape
    if found.shape != (n,) or (n and found.dtype.kind not in "iu"):
        raise InputError(
            f"{name}: must be the columns of {n} rows as integers, or a plan of shape ({n}, {m});"
            f" got {found.dtype} of shape {found.shape}"
        )


def _check_prices(name: str, found: Any, m: int) -> None:
    """Raise InputError for a file whose array cannot be prices; None is no prices."""
    if found is not None and (found.shape != (m,) or (m and found.dtype.kind not in "biuf")):
        raise InputError(
            f"--prices {name}: must be {m} real numbers, got {found.dtype} of shape {found.shape}"
        )


def read_assignment(name: str) -> Any:
    """Return the array of a ``.npy`` file, or a saved result."""
    from bigsap.sources.spec_files import load_npy

    file = Path(name)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    if file.suffix != ".npz":
        return np.asarray(load_npy(file))
    return bigsap.Result.load(file)
