"""Run the experiments, interleaved with looks at the machine's noise, and write the report.

Measurements go to ``runs.jsonl`` in the output folder as they are made; a second call runs
only what is missing. ``RESULTS.md`` and ``figure*.svg`` beside it are the report, ``report.html``
the same as a page for the browser, in one file. What is published is shorter: see ``publish``.
"""

from __future__ import annotations

import datetime
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from benchmarks import (
    bandwidth,
    cached,
    curve,
    decay,
    demo,
    gated,
    machine,
    outofcore,
    page,
    paths,
    peak_memory,
    pictures,
    small,
    startup,
    table1,
    threads,
    trees,
    versus,
)
from benchmarks.bench_settings import BenchSettings
from benchmarks.peers import find
from benchmarks.records import Log
from bigsap.errors import InputError

EXPERIMENTS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        table1,
        versus,
        small,
        gated,
        curve,
        threads,
        cached,
        outofcore,
        bandwidth,
        startup,
        peak_memory,
        paths,
        decay,
        trees,
        demo,
    )
}
LOG, REPORT, PAGE = "runs.jsonl", "RESULTS.md", "report.html"
_HEADING = "# Measured"


def run(
    settings: BenchSettings, only: Sequence[str] | None = None, *, fresh: bool = False, stamp: bool = False
) -> str:
    """Measure what is missing, write the report and return it as Markdown.

    only: names of EXPERIMENTS. fresh: forget earlier measurements. stamp: name the day.
    Raises StaleError when earlier measurements are of other code or of another machine.
    """
    path = settings.out / LOG
    settings.out.mkdir(parents=True, exist_ok=True)
    if fresh:
        path.unlink(missing_ok=True)
    peers = {name: find(name).distribution for name in settings.peers}
    log = Log(path, machine.header(peers, settings.scale))
    measure(settings, list(only or EXPERIMENTS), log)
    return _written(settings, log, stamp=stamp)


def report_only(settings: BenchSettings, *, stamp: bool = False) -> str:
    """The report of what was measured, whatever the code is by now.

    Raises InputError when nothing was.
    """
    path = settings.out / LOG
    if not path.exists():
        raise InputError(f"{path}: nothing was measured yet")
    return _written(settings, Log.read(path), stamp=stamp)


def publish(settings: BenchSettings, head: Path, folder: Path, *, stamp: bool = False) -> Path:
    """Write a short report into ``folder``, the text of ``head`` before it; beside it the page,
    which has every table, the pictures, and the log. Returns the report's path.
    """
    log = Log.read(settings.out / LOG)
    folder.mkdir(parents=True, exist_ok=True)
    for made in (*settings.out.glob("*.svg"), settings.out / PAGE, settings.out / LOG):
        shutil.copyfile(made, folder / made.name)
    parts = [head.read_text().rstrip(), "## Machine and versions", _facts(log, stamp=stamp)]
    for name, module in EXPERIMENTS.items():
        if any(log.of(experiment=name)):
            short = getattr(module, "brief", module.render)
            parts += [f"## {module.TITLE}", short(settings, log)]
    drawn = sorted(made.name for made in settings.out.glob("*.svg"))
    if drawn:
        links = ", ".join(f"[{name}]({name})" for name in drawn)
        parts += ["## Pictures", f"{links}; captions are in [{PAGE}]({PAGE})."]
    target = folder / REPORT
    target.write_text("\n\n".join(parts) + "\n")
    return target


def _written(settings: BenchSettings, log: Log, *, stamp: bool) -> str:
    found = pictures.draw(log, settings.out)
    text = report(settings, log, found, stamp=stamp)
    (settings.out / REPORT).write_text(text)
    day = datetime.date.today().isoformat() if stamp else None
    (settings.out / PAGE).write_text(page.page(log, sections(settings, log), day))
    return text


def _facts(log: Log, *, stamp: bool) -> str:
    date = [f"- date: {datetime.date.today().isoformat()}"] if stamp else []
    return "\n".join([*machine.lines(log), *date])


def measure(settings: BenchSettings, names: Sequence[str], log: Log) -> None:
    """Run what is missing of these experiments, with a look at the noise in between."""
    machine.probe(log)
    for name in names:
        clock = time.perf_counter()
        print(f"==> {name}", flush=True)
        EXPERIMENTS[name].run(settings, log)
        machine.probe(log)
        print(f"    {time.perf_counter() - clock:.0f} s", flush=True)


def sections(settings: BenchSettings, log: Log) -> page.Sections:
    """Title and Markdown of each experiment that has a record, by its name."""
    return {
        name: (module.TITLE, module.render(settings, log))
        for name, module in EXPERIMENTS.items()
        if any(log.of(experiment=name))
    }


def report(
    settings: BenchSettings, log: Log, drawn: dict[str, str] | None = None, *, stamp: bool = False
) -> str:
    """The whole report as Markdown; experiments without a record are left out.

    drawn: caption of each picture by its file name; they are shown at the end.
    """
    parts = [_HEADING, _facts(log, stamp=stamp)]
    for title, text in sections(settings, log).values():
        parts += [f"## {title}", text]
    if drawn:
        parts += ["## Pictures", *(f"![{text}]({file})\n\n{text}" for file, text in drawn.items())]
    return "\n\n".join(parts) + "\n"
