"""The commands of the service: ``serve``, and ``submit``, ``jobs``, ``result``, ``cancel``."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsap.cli.certify_command import ASSIGNMENT_HELP
from bigsap.cli.common import (
    OUTPUT_HELP,
    STATUS_EXIT,
    AddCommand,
    ExitStatus,
    add_output_flags,
    check_output,
    exit_of,
    note,
    on_terminal,
    print_json,
    print_table,
    save_result,
)
from bigsap.cli.k_best_command import print_ranking
from bigsap.cli.option_flags import add_request_options
from bigsap.cli.submitted import FileArguments, file_and_id, job_request
from bigsap.client.http import JobFailedError, ServiceError, header_text
from bigsap.display.text import align, bound_text, bytes_text, gap_text, number, result_record, result_text
from bigsap.errors import InputError

if TYPE_CHECKING:
    from bigsap.client.jobs import Client, Job
    from bigsap.result import Result

URL = "http://127.0.0.1:8765"
# Status codes of refusals caused by the content of a request, not by its sender or time.
_BAD_REQUEST = (400, 413, 415, 422)

SPEC_HELP = "a .json job request or cost spec, a .npy matrix, a zarr store, sparse .npz costs, or an address"


def add_commands(command: AddCommand) -> None:
    """Add the service's commands to the command line."""
    serve = command("serve", _serve, "run the service: REST jobs and the web page")
    serve.add_argument("--host", metavar="ADDR", help="default 127.0.0.1; others need keys")
    serve.add_argument("--port", type=int, metavar="N", help="default 8765; 0: any free port")
    serve.add_argument("--data", metavar="DIR", help="jobs, results, uploads; default bigsap-data")
    serve.add_argument(
        "--scheduler", metavar="ADDR", help="a running Dask scheduler; default: workers of our own"
    )
    serve.add_argument("--config", metavar="FILE", help="settings in a TOML file")

    submit = command("submit", _submit, "send a job to a service")
    submit.add_argument("spec", metavar="SPEC", help=SPEC_HELP)
    submit.add_argument("--label", metavar="TEXT", help="for people, and for bigsap jobs --label")
    add_request_options(submit)
    submit.add_argument(
        "--warm-start",
        metavar="JOB",
        help="where to start: a job of the same shape, a result (.npz), or prices (.npy)",
    )
    submit.add_argument(
        "--certify", metavar="ASSIGNMENT", help=f"prove this one in place of a solve: {ASSIGNMENT_HELP}"
    )
    submit.add_argument(
        "--prices", metavar="FILE", help="of the columns, for --certify: one pass, no solve (.npy, .npz)"
    )
    submit.add_argument(
        "--k-best",
        type=int,
        metavar="K",
        help="rank so many assignments, too, shown with the result; the client's Job.k_best() returns them",
    )
    submit.add_argument(
        "--spread",
        type=int,
        nargs="?",
        const=True,
        metavar="N",
        help="over several workers of the service's cluster; N: at most so many",
    )
    submit.add_argument("--dry-run", action="store_true", help="only say what memory and time it would take")
    submit.add_argument(
        "--idempotency-key", metavar="TEXT", help="submitting twice under one key makes one job"
    )
    submit.add_argument(
        "--uploaded",
        action="append",
        default=[],
        metavar="FILE=ID",
        help="continue an upload, or use one again; may be given several times",
    )
    submit.add_argument("--wait", action="store_true", help="wait for the result and print it")
    submit.add_argument("-o", "--output", metavar="FILE", help=f"wait; {OUTPUT_HELP}")
    add_service_flags(submit, quiet=True)

    jobs = command("jobs", _jobs, "list the jobs of a service, or show one")
    jobs.add_argument("job", nargs="?", metavar="ID", help="show this one in full")
    jobs.add_argument("--state", metavar="STATE", help="only those queued, running, ...")
    jobs.add_argument("--label", metavar="TEXT", help="only those with this label")
    jobs.add_argument("--limit", type=int, default=20, metavar="N", help="newest N; default 20")
    add_service_flags(jobs)

    result = command("result", _result, "fetch the result of a job")
    result.add_argument("job", metavar="ID")
    result.add_argument("--wait", action="store_true", help="wait until the job has ended")
    result.add_argument("-o", "--output", metavar="FILE", help=OUTPUT_HELP)
    add_service_flags(result, quiet=True)

    cancel = command("cancel", _cancel, "end a job")
    cancel.add_argument("job", metavar="ID")
    cancel.add_argument(
        "--now", action="store_true", help="at once, without keeping the best assignment so far"
    )
    add_service_flags(cancel)


def add_service_flags(parser: argparse.ArgumentParser, *, quiet: bool = False) -> None:
    """Add the options of every command that asks a service."""
    parser.add_argument("--url", metavar="URL", help=f"the service; default: $BIGSAP_URL, else {URL}")
    parser.add_argument("--key", metavar="KEY", help="access key; default: $BIGSAP_KEY")
    add_output_flags(parser)
    if quiet:
        parser.add_argument("--quiet", action="store_true", help="no progress bar, no notes")


def exit_of_error(error: ServiceError) -> ExitStatus:
    """Return the exit code of a service's error."""
    if isinstance(error, JobFailedError):
        return ExitStatus.JOB_FAILED
    return ExitStatus.BAD_INPUT if error.status in _BAD_REQUEST else ExitStatus.SERVICE


def client_of(args: argparse.Namespace) -> Client:
    """Return a client of the service that the arguments or the environment name."""
    from bigsap.client.jobs import Client

    url = args.url or os.environ.get("BIGSAP_URL") or URL
    # An empty variable counts as unset, as is usual in shells and compose files.
    key = (os.environ.get("BIGSAP_KEY") or None) if args.key is None else args.key
    return Client(url, key)


def _serve(args: argparse.Namespace) -> ExitStatus:
    # Until the settings are read a reload has nothing to do; unhandled, its signal would end the process.
    if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        settings = importlib.import_module("bigsap_server.settings")
        serve = importlib.import_module("bigsap_server.serve")
    except ImportError as error:
        raise ImportError(
            f'the service needs more packages ({error}): pip install "bigsap[server]"'
        ) from error
    given = {name: getattr(args, name) for name in ("host", "port", "data", "scheduler")}
    try:
        chosen = settings.load(args.config, **given)
    except ValueError as error:
        raise InputError(str(error)) from error
    code = serve.serve(chosen, lambda: settings.load(args.config, **given))
    return ExitStatus.OK if code is None else ExitStatus(code)


def _submit(args: argparse.Namespace) -> ExitStatus:
    output = None if args.output is None else check_output(args.output, args.spec)
    if args.idempotency_key is not None:  # checked before anything is uploaded
        header_text("--idempotency-key", args.idempotency_key)
    request = job_request(args)
    uploaded = dict(file_and_id(text) for text in args.uploaded)
    with client_of(args) as client:
        files = FileArguments(client, args, Path(args.spec).parent, uploaded)
        request = files.sent(request)
        files.check_uploaded()
        if args.dry_run:
            return _show_estimate(args, client.estimate(request))
        job = client.submit(request, label=args.label, idempotency_key=args.idempotency_key)
        if not args.wait and output is None:
            show_job(args, job)
            return ExitStatus.OK
        note(args, f"{job.id} is {job.state}")
        try:
            job.wait(progress=not args.quiet and on_terminal())
        except KeyboardInterrupt:
            note(args, f"{job.id} goes on; bigsap cancel {job.id} ends it")
            raise
        return _show_result(args, job, job.result(), output)


def _show_estimate(args: argparse.Namespace, estimate: dict[str, Any]) -> ExitStatus:
    if args.json:
        print_json({**estimate, "exit_code": int(ExitStatus.OK)})
        return ExitStatus.OK
    print(align(_estimate_lines(estimate)))
    return ExitStatus.OK


def _estimate_lines(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what people ask of an estimate; ``--json`` has the rest."""
    found, shape = record["estimate"], record["spec"].get("shape")
    lines = [("dry run", "nothing was started; --json shows the whole request")]
    if shape:
        lines.append(("n", "{:,} x {:,}".format(*shape)))
    for name in ("memory", "disk"):
        if found.get(f"{name}_bytes") is not None:
            parts = (f"{part} {bytes_text(size)}" for part, size in found[name].items() if size)
            lines.append((name, f"{bytes_text(found[f'{name}_bytes'])} ({', '.join(parts)})"))
    if found.get("seconds") is not None:
        low, high = number(found["seconds_low"]), number(found["seconds_high"])
        lines.append(("seconds", f"{number(found['seconds'])} ({low} to {high})"))
    if found.get("threads") is not None:
        lines.append(("threads", number(found["threads"])))
    if spread := found.get("spread"):
        pays = "pays" if spread["pays"] else "does not pay"
        alone = number(spread["seconds_alone"])
        lines.append(("spread", f"{spread['workers']} workers, {pays}: {alone} seconds alone"))
    return lines + [("note", note) for note in found.get("notes", ())]


def show_job(args: argparse.Namespace, job: Job) -> None:
    """Print a job."""
    if args.json:
        print_json({**job.record, "exit_code": int(ExitStatus.OK)})
    else:
        print(align(_job_lines(job)))


def _job_lines(job: Job) -> list[tuple[str, str]]:
    record = job.record
    lines = [("job", job.id), ("state", job.state)]
    for key in ("label", "attempt", "created", "started", "finished", "cancel"):
        if record.get(key) is not None:
            lines.append((key, str(record[key])))
    if record.get("shape"):
        n, m = record["shape"]
        lines.append(("n", f"{n:,} x {m:,}"))
    progress = job.progress
    for key in ("phase", "assigned", "ranked", "rows_evaluated", "lower_bound", "upper_bound", "eta_s"):
        value = progress.get(key)
        if value is not None and key.endswith("_bound"):
            lines.append((key.replace("_", " "), bound_text(value, None, above=key == "upper_bound")))
        elif value is not None:
            lines.append((key.replace("_", " "), number(value)))
    if job.outcome:
        status, gap = job.outcome.get("status"), job.outcome.get("gap")
        within = f": proved only to within {gap_text(gap, None)}" if status == "imprecise" and gap else ""
        lines.append(("outcome", f"{status}{within}"))
    if job.problem:
        lines.append(("problem", str(job.problem.get("detail") or job.problem.get("title"))))
    return lines


def _jobs(args: argparse.Namespace) -> ExitStatus:
    with client_of(args) as client:
        if args.job is not None:
            show_job(args, client.job(args.job))
            return ExitStatus.OK
        if args.limit < 1:
            raise InputError(f"--limit must be at least 1, got {args.limit}")
        found = list(client.jobs(state=args.state, label=args.label, limit=args.limit))
    if args.json:
        print_json({"jobs": [job.record for job in found], "exit_code": int(ExitStatus.OK)})
        return ExitStatus.OK
    print_table(("ID", "STATE", "CREATED", "DONE", "LABEL"), map(_row, found), "no jobs")
    return ExitStatus.OK


def _row(job: Job) -> tuple[str, str, str, str, str]:
    record, progress = job.record, job.progress
    done, status = "", str((job.outcome or {}).get("status") or "optimal")
    if job.state == "succeeded" and (status != "optimal" or "resume" not in record["links"]):
        done = "100%" if status == "optimal" else status.replace("_", " ")
    elif progress.get("to_rank"):
        done = f"{progress['ranked']:,} of {progress['to_rank']:,} ranked"
    elif progress.get("assigned") is not None and record.get("shape"):
        done = f"phase {progress.get('phase', 0)}"
    created = str(record.get("created") or "")[:19].replace("T", " ")
    return job.id, job.state, created, done, str(record.get("label") or "")


def _result(args: argparse.Namespace) -> ExitStatus:
    output = None if args.output is None else check_output(args.output)
    with client_of(args) as client:
        job = client.job(args.job)
        if args.wait:
            job.wait(progress=not args.quiet and on_terminal())
        return _show_result(args, job, job.result(), output)


def _show_result(args: argparse.Namespace, job: Job, result: Result, output: Path | None) -> ExitStatus:
    if output is not None:
        save_result(result, output, costs=False)
    code = exit_of(result)
    asked = job.record.get("k_best") is not None
    ranking = job.ranked_costs() if asked else None
    if asked and ranking is None:
        note(args, f"{job.id} was stopped before its assignments were ranked")
        code = code or ExitStatus.STOPPED
    elif ranking is not None:
        code = code or STATUS_EXIT[ranking[2]]
    if args.json:
        record = {"id": job.id, "state": job.state, **result_record(result)}
        if asked:
            names = ("costs", "complete", "status")
            record["k_best"] = None if ranking is None else dict(zip(names, ranking, strict=True))
        record["output"] = None if output is None else str(output)
        record["exit_code"] = int(code)
        print_json(record)
        return code
    print(align([("job", job.id)]) + "\n" + result_text(result))
    if ranking is not None:
        print_ranking(*ranking)
    if output is not None:
        note(args, f"saved to {output}")
    return code


def _cancel(args: argparse.Namespace) -> ExitStatus:
    with client_of(args) as client:
        job = client.cancel(args.job, "now" if args.now else "graceful")
        show_job(args, job)
    return ExitStatus.OK
