"""The parser and the entry point of the command line.

Results go to stdout; progress, notes and errors go to stderr. The exit codes are in ``ExitStatus``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import bigsap
from bigsap.cli import certify_command, k_best_command, manage_commands, solve_command
from bigsap.cli import job_commands as cli_service
from bigsap.cli.common import (
    COSTS_HELP,
    EXIT_CODES,
    ExitStatus,
    Parser,
    UsageExit,
    add_output_flags,
    draw,
    exit_of,
    forget_stdout,
    on_terminal,
    open_streams,
    print_json,
    tell,
)
from bigsap.cli.option_flags import PROBLEM, add_problem_options, given_options
from bigsap.client.http import ServiceError
from bigsap.display.progress_bar import clock
from bigsap.display.text import align, bound_text, bytes_text, gap_text, number, shown
from bigsap.errors import BigsapError, CertificateError, InputError, OptionError
from bigsap.info import version


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
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

    solve_command.add_command(command)
    verify = command("verify", _verify, "check a saved result against its costs")
    verify.add_argument("costs", metavar="COSTS", help=COSTS_HELP)
    verify.add_argument("result", metavar="RESULT", help=".npz file written by solve -o")
    add_problem_options(verify)
    verify.add_argument(
        "--pairs", action="store_true", help="look at every pair, also where bounds of the costs would do"
    )
    add_output_flags(verify)
    certify_command.add_command(command)
    k_best_command.add_command(command)

    info = command("info", _info, "print versions, machine, kernel cache and extras")
    add_output_flags(info)

    warmup = command("warmup", _warmup, "compile all kernels now, so that later runs start at once")
    warmup.add_argument("--processes", type=int, metavar="N", help="that compile at once; default: up to 4")

    rechunk = command("rechunk", _rechunk, "copy a matrix into a zarr store with whole-row chunks")
    rechunk.add_argument("source", metavar="SRC", help=".npy file or zarr store")
    rechunk.add_argument("target", metavar="DST", help="zarr store to create")
    rechunk.add_argument("--rows", type=int, metavar="N", help="rows a chunk; default 1 to 8 MiB")
    rechunk.add_argument("--compress", action="store_true", help="smaller, but slower to read")

    demo = command("demo", _demo, "match two photographs pixel by pixel and swap their colours")
    demo.add_argument("--pixels", type=int, default=20_000, metavar="N", help="at least N a picture")
    demo.add_argument("--out", default="demo-out", metavar="DIR", help="folder for the pictures")
    demo.add_argument("--position", type=float, default=1.0, metavar="W", help="place counts W times colour")
    demo.add_argument("--threads", type=int, metavar="N")
    demo.add_argument("--cache", default="512MiB", metavar="SIZE", help="memory for rows")
    cli_service.add_commands(command)
    manage_commands.add_commands(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (wrong usage and --help raise SystemExit)."""
    open_streams()
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
        forget_stdout()  # the reader has closed the pipe (bigsap ... | head)
        return int(ExitStatus.OK)
    except CertificateError as error:
        return _fail(args, ExitStatus.CERTIFICATE, f"certificate failed: {error}", error)
    except ServiceError as error:
        return _fail(args, cli_service.exit_of_error(error), str(error), error)
    except (BigsapError, OSError, ImportError) as error:
        return _fail(args, ExitStatus.BAD_INPUT, _text_of(error), error)
    except MemoryError as error:
        text = f"out of memory {error}".strip() + "; try a smaller --cache"
        return _fail(args, ExitStatus.BAD_INPUT, text, error)
    except Exception as error:  # noqa: BLE001  the last resort: no traceback for users
        text = f"internal error: {type(error).__name__}: {error} (BIGSAP_DEBUG=1 shows where)"
        return _fail(args, ExitStatus.INTERNAL, text, error)


def _text_of(error: Exception) -> str:
    """Return what an error says; of a system's error, the file and the reason without their number."""
    if isinstance(error, OSError) and error.strerror is not None and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


def _fail(args: argparse.Namespace, code: ExitStatus, text: str, error: Exception | None) -> int:
    if error is not None and os.environ.get("BIGSAP_DEBUG") == "1":
        # Escape the lines of the traceback: text in them must not look like our own messages.
        tell("\n".join(f"| {shown(line)}" for line in traceback.format_exc().split("\n")))
    message = " ".join(text.split())
    tell(f"bigsap: error: {shown(message)}")
    if isinstance(error, OSError):
        try:
            sys.stdout.flush()
        except OSError:
            forget_stdout()
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


def _print_failure(error: str, message: str, code: ExitStatus, more: dict[str, Any] | None = None) -> None:
    try:
        print_json({"error": error, "message": message, "exit_code": int(code), **(more or {})})
    except OSError:
        forget_stdout()


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    tell(f"bigsap: warning: {shown(' '.join(str(message).split()))}")


def _verify(args: argparse.Namespace) -> ExitStatus:
    from bigsap.cli.costspec import open_problem

    file = Path(args.result)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    result = bigsap.Result.load(file)
    costs, asked = open_problem(args.costs, result.maximize)
    given = {name: asked[name] for name in PROBLEM if name in asked} | given_options(args)
    certificate = result.verify(costs, pairs=args.pairs, **given)
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
    if certificate.fun is not None:
        lines.append(("cost", number(certificate.fun)))
    if certificate.bound is not None:
        lines.append(("bound", bound_text(certificate.bound, certificate.fun, above=result.maximize)))
    if certificate.gap is not None:
        lines.append(("gap", gap_text(certificate.gap, None)))
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
    from bigsap.compile.kernel_files import built, kept_in
    from bigsap.engine.core.team import available_threads

    if args.processes is not None and args.processes < 1:
        raise OptionError(f"--processes must be at least 1, got {args.processes}")
    kept = kept_in()
    if kept is None and not built():
        raise OptionError("no folder can be written where kernels are kept: set NUMBA_CACHE_DIR to one")
    started = time.perf_counter()
    print("compiling the kernels (a minute or two the first time)", flush=True)
    count = bigsap.warmup(
        lambda name: print(shown(f"  {clock(time.perf_counter() - started)}  {name}"), flush=True),
        processes=args.processes or min(4, available_threads()),
    )
    seconds = time.perf_counter() - started
    place = "" if kept is None else f", in {kept}"
    print(shown(f"{count} kinds ready after {seconds:.1f} s{place}"))
    return ExitStatus.OK


def _rechunk(args: argparse.Namespace) -> ExitStatus:
    from bigsap.sources.zarr.zarr_store import rechunk

    def show(done: int, total: int) -> None:
        draw(f"\r{done:,} of {total:,} rows")

    started = time.perf_counter()
    print(shown(f"copying {args.source} to {args.target} ..."), flush=True)
    drawing = on_terminal()
    try:
        rechunk(
            args.source,
            args.target,
            rows=args.rows,
            compress=args.compress,
            progress=show if drawing else None,
        )
    finally:
        if drawing:
            tell("")
    size = sum(file.stat().st_size for file in Path(args.target).rglob("*") if file.is_file())
    print(f"wrote {bytes_text(size)} in {time.perf_counter() - started:.1f} s")
    return ExitStatus.OK


def _demo(args: argparse.Namespace) -> ExitStatus:
    from bigsap.cli.demo_command import run

    result = run(
        pixels=args.pixels, out=Path(args.out), position=args.position, threads=args.threads, cache=args.cache
    )
    return exit_of(result)
