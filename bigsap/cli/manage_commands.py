"""Commands that look after what a service keeps: ``resume``, ``delete``, ``arrays``, ``keys``."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

from bigsap.cli.common import AddCommand, ExitStatus, add_output_flags, print_json, print_table, tell
from bigsap.cli.job_commands import add_service_flags, client_of, exit_of_error, show_job
from bigsap.client.http import ServiceError, UnreachableError
from bigsap.display.text import bytes_text, shown
from bigsap.errors import InputError


def add_commands(command: AddCommand) -> None:
    """Add the commands to the command line."""
    resume = command("resume", _resume, "continue a job that has ended early, from its checkpoint")
    resume.add_argument("job", metavar="ID")
    add_service_flags(resume)

    delete = command("delete", _delete, "remove jobs that have ended, with their files")
    delete.add_argument("jobs", nargs="+", metavar="ID")
    add_service_flags(delete)

    arrays = command("arrays", _arrays, "list uploaded arrays, or remove some")
    arrays.add_argument("--delete", nargs="+", default=[], metavar="ID", help="remove these arrays")
    arrays.add_argument("--limit", type=int, default=20, metavar="N", help="newest N; default 20")
    add_service_flags(arrays)

    keys = command("keys", _keys, "make a key: print it, and its entry for the file of keys")
    keys.add_argument("name", metavar="NAME", help="whose key it is")
    scopes = "read, submit, admin; default read submit"
    keys.add_argument("scopes", nargs="*", default=[], metavar="SCOPE", help=scopes)
    add_output_flags(keys)


def _resume(args: argparse.Namespace) -> ExitStatus:
    with client_of(args) as client:
        show_job(args, client.job(args.job).resume())
    return ExitStatus.OK


def _delete(args: argparse.Namespace) -> ExitStatus:
    with client_of(args) as client:
        return _remove(args, args.jobs, client.delete)


def _remove(args: argparse.Namespace, ids: list[str], remove: Callable[[str], None]) -> ExitStatus:
    """Remove all that can be removed, and print why others cannot; return the first failure's exit code."""
    code, gone, errors, first = ExitStatus.OK, list[str](), dict[str, str](), dict[str, Any]()
    for one in ids:
        try:
            remove(one)
            gone.append(one)
        except (ServiceError, InputError) as error:
            errors[one] = str(error)
            tell(f"bigsap: error: {shown(f'{one}: {error}')}")
            if not first:
                code, first = ExitStatus.BAD_INPUT, {"error": type(error).__name__, "message": str(error)}
                if isinstance(error, ServiceError):
                    code, first["problem"] = exit_of_error(error), error.problem
            if isinstance(error, UnreachableError):
                break  # the others would fail as well
    if args.json:
        print_json({"deleted": gone, "errors": errors, **first, "exit_code": int(code)})
    return code


def _arrays(args: argparse.Namespace) -> ExitStatus:
    if args.limit < 1:
        raise InputError(f"--limit {args.limit} is not valid: at least 1 array must be shown")
    with client_of(args) as client:
        if args.delete:
            return _remove(args, args.delete, client.delete_array)
        found = list(client.arrays(limit=args.limit))
    if args.json:
        print_json({"arrays": found, "deleted": [], "exit_code": int(ExitStatus.OK)})
    else:
        rows = [
            (
                str(one["id"]),
                str(one["dtype"]),
                " x ".join(f"{size:,}" for size in one["shape"]),
                bytes_text(one["bytes"]),
                "sealed" if one["sealed"] else "complete" if one["complete"] else "incomplete",
                str(one["created"])[:19].replace("T", " "),
            )
            for one in found
        ]
        print_table(("ID", "DTYPE", "SHAPE", "SIZE", "STATE", "CREATED"), rows, "no arrays")
    return ExitStatus.OK


def _keys(args: argparse.Namespace) -> ExitStatus:
    try:
        auth = importlib.import_module("bigsap_server.auth")
    except ImportError as error:
        raise ImportError(f'keys need more packages ({error}): pip install "bigsap[server]"') from error
    try:
        key, entry = auth.new_entry(args.name, args.scopes)
    except ValueError as error:
        raise InputError(str(error)) from error
    if args.json:
        print_json({"key": key, "entry": entry, "exit_code": int(ExitStatus.OK)})
    else:
        print(f"# key: {key}\n{entry}", end="")
    return ExitStatus.OK
