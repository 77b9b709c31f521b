"""Run the experiments, interleaved with looks at the machine's noise, and write the reports.

Measurements go to ``runs.jsonl`` in the output folder as they are made; a second call runs
only what is missing. ``report.html`` beside it has every table and chart, ``RESULTS.md`` the most.
"""

from __future__ import annotations

import importlib
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import contest, machine, page
from benchmarks.bench_settings import BenchSettings
from benchmarks.peers import find
from benchmarks.records import Log
from bigsap.errors import InputError

_ORDER = (
    "table1 versus work small batches gated sparse capacities ranked high_dimensions curve threads"
    " cached outofcore bandwidth startup peak_memory paths decay trees gaps demo"
)
_MODULES = [importlib.import_module(f"benchmarks.experiments.{name}") for name in _ORDER.split()]
EXPERIMENTS = {module.NAME: module for module in _MODULES}
# Not in the short report.
_PAGE_ONLY = {"cached", "outofcore", "paths", "decay"}
LOG, REPORT, PAGE, HEAD = "runs.jsonl", "RESULTS.md", "report.html", "HEAD.md"


def measured(settings: BenchSettings, only: Sequence[str] | None = None, *, fresh: bool = False) -> Log:
    """The log, with what was missing of these experiments measured.

    only: names of EXPERIMENTS. fresh: forget earlier measurements.
    Raises StaleError when these are of other code or of another machine.
    """
    path = settings.out / LOG
    settings.out.mkdir(parents=True, exist_ok=True)
    if fresh:
        path.unlink(missing_ok=True)
    peers = {name: find(name).distribution for name in settings.peers}
    peers |= dict(zip(contest.LIBRARIES, contest.LIBRARIES, strict=True)) if peers else {}
    log = Log(path, machine.header(peers, settings.scale))
    machine.probe(log)
    for name in only or EXPERIMENTS:
        clock = time.perf_counter()
        print(f"==> {name}", flush=True)
        EXPERIMENTS[name].run(settings, log)
        machine.probe(log)
        print(f"    {time.perf_counter() - clock:.0f} s", flush=True)
    return log


def known(settings: BenchSettings) -> Log:
    """What was measured, whatever the code is by now. Raises InputError when nothing was."""
    path = settings.out / LOG
    if not path.exists():
        raise InputError(f"{path}: nothing was measured yet")
    return Log.read(path)


def sections(log: Log, *, brief: bool = False) -> page.Sections:
    """Title and blocks of each experiment that has a record, by its name."""
    found: page.Sections = {}
    for name, module in EXPERIMENTS.items():
        reads = getattr(module, "READS", name)
        if any(log.of(experiment=reads)) and not (brief and name in _PAGE_ONLY):
            render = getattr(module, "brief", module.render) if brief else module.render
            found[name] = (module.TITLE, render(log))
    return found


def write(log: Log, folder: Path, date: str | None = None) -> Path:
    """Write both reports and the log into the folder; the path of the one in Markdown.

    It begins with ``HEAD.md`` of the folder, where there is one. date: of the run, to be named.
    """
    folder.mkdir(parents=True, exist_ok=True)
    head = folder / HEAD
    text = head.read_text() if head.exists() else "# Measured"
    (folder / PAGE).write_text(page.page(log, sections(log), date))
    (folder / REPORT).write_text(page.markdown(log, sections(log, brief=True), text, date))
    if log.path.resolve() != (folder / LOG).resolve():
        shutil.copyfile(log.path, folder / LOG)
    return folder / REPORT
