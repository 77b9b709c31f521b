"""The command line: arguments -> solve -> files.

Results go to stdout; progress, notes and errors go to stderr. Every way out has its
``ExitStatus`` code.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import bigsap
from bigsap.cli import bench as cli_bench
from bigsap.cli import job_commands as cli_service
from bigsap.cli.common import (
    COSTS_HELP,
    EXIT_CODES,
    ExitStatus,
    Parser,
    UsageExit,
    add_output_flags,
    check_output,
    exit_of,
    note,
    print_json,
)
from bigsap.client.http import ServiceError
from bigsap.errors import BigsapError, CertificateError, InputError, OptionError
from bigsap.info import version
from bigsap.show.progress_bar import clock
from bigsap.show.text import align, bytes_text, number, result_record, result_text

if TYPE_CHECKING:
    from bigsap.result import Result


def build_parser() -> argparse.ArgumentParser:
    """The whole grammar of the command line."""
    parser = Parser(
        prog="bigsap",
        description="Exact linear assignment when the cost matrix does not fit.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"bigsap {version('bigsap')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], ExitStatus], summary: str
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(run=run)
        return sub

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
    solve.add_argument(
        "--no-epsilon", action="store_true", help="plain successive shortest paths, one phase"
    )
    solve.add_argument(
        "--start",
        choices=("auto", "levels", "estimate", "none"),
        default="auto",
        help="first prices; auto decides by a sample",
    )
    solve.add_argument("--threads", type=int, metavar="N", help="default: all this process may use")
    solve.add_argument("--cache", metavar="SIZE", help="memory for rows, for instance 4GiB")
    solve.add_argument(
        "--policy", choices=("auto", "slru", "lfu"), default="auto", help="which rows to keep"
    )
    solve.add_argument("--memory-limit", metavar="SIZE", help="memory for the whole solve")
    solve.add_argument(
        "--time-limit",
        type=float,
        metavar="S",
        help="seconds after which to return the best so far",
    )
    solve.add_argument(
        "--gap", type=float, default=0.0, metavar="G", help="stop when proved to be this close"
    )
    solve.add_argument(
        "--checkpoint", metavar="FILE", help="where to keep what --resume continues from"
    )
    solve.add_argument(
        "--checkpoint-every", type=float, default=60.0, metavar="S", help="seconds; default 60"
    )
    solve.add_argument(
        "--resume", action="store_true", help="continue from --checkpoint FILE where it exists"
    )
    solve.add_argument("--seed", type=int, default=0, metavar="N")
    solve.add_argument(
        "--no-certify", action="store_true", help="skip the final pass that proves the result"
    )
    solve.add_argument(
        "--certify-pairs",
        action="store_true",
        help="prove it by every pair, also where bounds of the costs would do",
    )
    solve.add_argument("-o", "--output", metavar="FILE.npz", help="where to save the result")
    add_output_flags(solve)
    solve.add_argument("--quiet", action="store_true", help="no progress bar, no notes")

    verify = command("verify", _verify, "check a saved result against its costs")
    verify.add_argument("costs", metavar="COSTS", help=COSTS_HELP)
    verify.add_argument("result", metavar="RESULT", help=".npz file written by solve -o")
    verify.add_argument(
        "--pairs",
        action="store_true",
        help="look at every pair, also where bounds of the costs would do",
    )
    add_output_flags(verify)

    info = command("info", _info, "print versions, machine, kernel cache and extras")
    add_output_flags(info)

    warmup = command("warmup", _warmup, "compile all kernels now, so that later runs start at once")
    warmup.add_argument(
        "--processes", type=int, metavar="N", help="that compile at once; default: up to 4"
    )

    rechunk = command("rechunk", _rechunk, "copy a matrix into a zarr store with whole-row chunks")
    rechunk.add_argument("source", metavar="SRC", help=".npy file or zarr store")
    rechunk.add_argument("target", metavar="DST", help="zarr store to create")
    rechunk.add_argument("--rows", type=int, metavar="N", help="rows a chunk; default 1 to 8 MiB")
    rechunk.add_argument("--compress", action="store_true", help="smaller, but slower to read")

    demo = command("demo", _demo, "match two photographs pixel by pixel and swap their colours")
    demo.add_argument(
        "--pixels", type=int, default=20_000, metavar="N", help="at least N a picture"
    )
    demo.add_argument("--out", default="demo-out", metavar="DIR", help="folder for the pictures")
    demo.add_argument(
        "--position", type=float, default=1.0, metavar="W", help="place counts W times colour"
    )
    demo.add_argument("--threads", type=int, metavar="N")
    demo.add_argument("--cache", default="512MiB", metavar="SIZE", help="memory for rows")
    cli_bench.add_command(command)
    cli_service.add_commands(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (wrong usage and --help leave by SystemExit)."""
    words = sys.argv[1:] if argv is None else argv
    try:
        args = build_parser().parse_args(words)
    except UsageExit as leaving:
        if "--json" in words:
            _print_failure("UsageError", leaving.message, ExitStatus.USAGE)
        raise
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = args.run(args)
            sys.stdout.flush()
            return int(code)
    except KeyboardInterrupt:
        return _fail(args, ExitStatus.INTERRUPTED, "interrupted", None)
    except BrokenPipeError:
        # The reader left (bigsap ... | head). Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitStatus.OK)
    except CertificateError as error:
        return _fail(args, ExitStatus.CERTIFICATE, f"certificate failed: {error}", error)
    except ServiceError as error:
        return _fail(args, cli_service.exit_of_error(error), str(error), error)
    except (BigsapError, OSError, ImportError) as error:
        return _fail(args, ExitStatus.BAD_INPUT, str(error), error)
    except MemoryError as error:
        text = f"out of memory {error}".strip() + "; try a smaller --cache"
        return _fail(args, ExitStatus.BAD_INPUT, text, error)
    except Exception as error:  # noqa: BLE001  the last resort: no traceback for users
        text = f"internal error: {type(error).__name__}: {error} (BIGSAP_DEBUG=1 shows where)"
        return _fail(args, ExitStatus.INTERNAL, text, error)


def _fail(args: argparse.Namespace, code: ExitStatus, text: str, error: Exception | None) -> int:
    if error is not None and os.environ.get("BIGSAP_DEBUG") == "1":
        traceback.print_exc()
    message = " ".join(text.split())
    print(f"bigsap: error: {message}", file=sys.stderr)
    if getattr(args, "json", False):
        more: dict[str, Any] = {}
        for place in ("row", "column"):
            if getattr(error, place, None) is not None:
                more[place] = getattr(error, place)
        if isinstance(error, ServiceError):
            more["problem"] = error.problem
        name = type(error).__name__ if error is not None else "KeyboardInterrupt"
        _print_failure(name, message, code, more)
    return int(code)


def _print_failure(
    error: str, message: str, code: ExitStatus, more: dict[str, Any] | None = None
) -> None:
    print_json({"error": error, "message": message, "exit_code": int(code), **(more or {})})


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"bigsap: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _solve(args: argparse.Namespace) -> ExitStatus:
    from bigsap.cli.costspec import open_costs

    output = None if args.output is None else check_output(Path(args.output))
    cache = None
    if args.cache is not None or args.policy != "auto":
        cache = bigsap.RowCache(bytes=args.cache, policy=args.policy)
    if args.resume and args.checkpoint is None:
        raise InputError("--resume needs --checkpoint FILE, the file to continue from")
    if args.no_certify and args.certify_pairs:
        raise InputError("--no-certify and --certify-pairs exclude each other")
    solve: Callable[..., Result] = bigsap.solve
    if args.resume and Path(args.checkpoint).exists():
        solve = partial(bigsap.resume, args.checkpoint)
    elif args.resume:
        print(
            f"bigsap: note: there is no checkpoint {args.checkpoint} yet: starting from the"
            " beginning",
            file=sys.stderr,
        )
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
        progress=not args.quiet and sys.stderr.isatty(),
        certify="pairs" if args.certify_pairs else not args.no_certify,
        seed=args.seed,
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


def _verify(args: argparse.Namespace) -> ExitStatus:
    from bigsap.cli.costspec import open_costs

    file = Path(args.result)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    result = bigsap.Result.load(file)
    certificate = result.verify(open_costs(args.costs), pairs=args.pairs)
    if args.json:
        print_json(
            {
                "verified": True,
                "status": result.status,
                "fun": certificate.fun,
                "bound": certificate.bound,
                "gap": certificate.gap,
                "pairs": certificate.pairs,
                "by": certificate.by,
                "exit_code": int(ExitStatus.OK),
            }
        )
        return ExitStatus.OK
    lines = [("verified", f"{file} is what it claims ({result.status})")]
    for label, value in (("cost", certificate.fun), ("bound", certificate.bound)):
        if value is not None:
            lines.append((label, number(value)))
    if certificate.gap is not None:
        lines.append(("gap", f"{certificate.gap:.3g}"))
    others = ", the others excluded by bounds" if certificate.by == "bounds" else ""
    lines.append(("pairs checked", f"{certificate.pairs:,}{others}"))
    print(align(lines))
    return ExitStatus.OK


def _info(args: argparse.Namespace) -> ExitStatus:
    from bigsap.info import collect, text_lines

    facts = collect()
    if args.json:
        print_json(facts)
    else:
        print(align(text_lines(facts)))
    return ExitStatus.OK


def _warmup(args: argparse.Namespace) -> ExitStatus:
    from bigsap.engine.core.team import available_threads
    from bigsap.native.kernel_files import kept_in

    if args.processes is not None and args.processes < 1:
        raise OptionError(f"--processes must be at least 1, got {args.processes}")
    started = time.perf_counter()
    print("compiling the kernels (a minute or two the first time)", flush=True)
    count = bigsap.warmup(
        lambda name: print(f"  {clock(time.perf_counter() - started)}  {name}", flush=True),
        processes=args.processes or min(4, available_threads()),
    )
    print(f"{count} kinds ready after {time.perf_counter() - started:.1f} s, in {kept_in()}")
    return ExitStatus.OK


def _rechunk(args: argparse.Namespace) -> ExitStatus:
    from bigsap.sources.zarr.zarr_store import rechunk

    def show(done: int, total: int) -> None:
        print(f"\r{done:,} of {total:,} rows", end="", file=sys.stderr, flush=True)

    started = time.perf_counter()
    print(f"copying {args.source} to {args.target} ...", flush=True)
    on_terminal = sys.stderr.isatty()
    try:
        rechunk(
            args.source,
            args.target,
            rows=args.rows,
            compress=args.compress,
            progress=show if on_terminal else None,
        )
    finally:
        if on_terminal:
            print(file=sys.stderr)
    size = sum(file.stat().st_size for file in Path(args.target).rglob("*") if file.is_file())
    print(f"wrote {bytes_text(size)} in {time.perf_counter() - started:.1f} s")
    return ExitStatus.OK


def _demo(args: argparse.Namespace) -> ExitStatus:
    from bigsap.cli.demo_command import run

    result = run(
        pixels=args.pixels,
        out=Path(args.out),
        position=args.position,
        threads=args.threads,
        cache=args.cache,
    )
    return exit_of(result)
