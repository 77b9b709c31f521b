"""The reports of a log: a page for the browser, and a short one in Markdown, by templates."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from benchmarks import machine
from benchmarks.charts import galleries
from benchmarks.experiments import curve
from benchmarks.records import Log
from benchmarks.standings import Match, matches
from benchmarks.tables import DASH, Block, Heading, Table, seconds_text, threads_text

#: Title and blocks of an experiment, by its name.
Sections = dict[str, tuple[str, list[Block]]]
# What a cell says that somebody should look at, and what says that all is well.
_BAD, _GOOD = {"MISSED", "WRONG", "NO", "ANOTHER", "failed"}, {"met", "yes", "same"}


def page(log: Log, sections: Sections, date: str | None = None) -> str:
    """The whole page as text. date: of the run, as people read it.

    Everything is inline and the page's own policy forbids all else, so that it can be kept,
    mailed or put behind any address.
    """
    games = matches(log)
    missed = bars(sections)[1]
    return (
        _templates()
        .get_template("report.html.j2")
        .render(
            log=log,
            date=date,
            sections=sections,
            facts=machine.lines(log),
            tiles=_tiles(log, sections, games),
            contest=_contest(games),
            losses=_losses(games) + [f"Bar missed. {text}" for text in missed],
            galleries=galleries(log),
        )
    )


def markdown(log: Log, sections: Sections, head: str, date: str | None = None) -> str:
    """The short report. head: Markdown before it."""
    facts = machine.lines(log) + ([f"date: {date}"] if date else [])
    template = _templates().get_template("report.md.j2")
    return template.render(head=head.rstrip(), facts=facts, sections=sections)


def _templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.tests |= {
        "table": lambda block: isinstance(block, Table),
        "heading": lambda block: isinstance(block, Heading),
        "list": lambda block: isinstance(block, list),
    }
    found.filters |= {"code": _code, "kind": _kind, "svg": Markup}
    return found


def _code(text: str) -> Markup:
    """Escaped; what stands between backticks becomes code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _kind(cell: str) -> str:
    """The class of a cell."""
    return "bad" if cell in _BAD else "good" if cell in _GOOD else ""


def bars(sections: Sections) -> tuple[int, list[str]]:
    """How many bars were met, and each that was missed, in words."""
    met, missed = 0, []
    for title, blocks in sections.values():
        for block in blocks:
            for cells in block.rows if isinstance(block, Table) else ():
                met += cells.count("met")
                if isinstance(block, Table) and "MISSED" in cells:
                    bar = block.head[cells.index("MISSED")]
                    missed.append(f"{title}: {', '.join(cells[:2])} ({bar})")
    return met, missed


def _tiles(log: Log, sections: Sections, games: list[Match]) -> list[tuple[str, str, str]]:
    """A number, what it is, and the class of its tile."""
    found = []
    if games:
        lost = sum(game.lost for game in games)
        what = f"classes and sizes where {games[0].solver} is the fastest"
        found.append((f"{len(games) - lost} of {len(games)}", what, "good"))
        found.append((str(lost), "lost to another solver; marked in red", "bad" if lost else "good"))
        if leads := [game.lead for game in games if game.lead is not None]:
            found.append((_times(median(leads)), "median lead over the best other", ""))
    met, missed = bars(sections)
    if met or missed:
        kind = "bad" if missed else "good"
        found.append((f"{met} of {met + len(missed)}", "bars met", kind))
    solved = [r for r in log.of(experiment=curve.NAME, solver=curve.SOLVER) if "seconds" in r]
    if solved:
        most = max(solved, key=lambda r: int(r["n"]))
        took = f"{seconds_text(most['seconds'])} s, {most['peak_bytes'] / 2**20:,.0f} MiB"
        what = f"without a matrix: {took}, {most['status']}"
        found.append((f"{most['n']:,} points", what, ""))
    return found


def _times(lead: float) -> str:
    return f"{lead:.1f}\u00d7" if lead < 100 else f"{lead:.0f}\u00d7"


def _cell(game: Match) -> dict[str, str]:
    """By how much we lead or trail, against whom, and the class of the cell."""
    lead, who = game.lead, f"than {game.rival}" if game.rival else "no other solver ended"
    if lead is None:
        said = DASH
    elif game.lost:
        said = f"\u2717 {_times(1 / lead)} slower"
    else:
        said = f"\u2713 {_times(lead)} faster" if game.rival else f"\u2713 over {_times(lead)}"
    kind = "lost" if game.lost else "won" if lead else ""
    return {"kind": kind, "said": said, "who": who, "seconds": f"{seconds_text(game.seconds)} s"}


def _contest(games: list[Match]) -> dict[str, Any] | None:
    """Classes against sizes and threads: by how much we lead or trail."""
    if not games:
        return None
    columns = list(dict.fromkeys((game.n, game.threads) for game in games))
    at = {(game.cls, game.n, game.threads): _cell(game) for game in games}
    classes = dict.fromkeys(game.cls for game in games)
    return {
        "solver": games[0].solver,
        "head": [(f"n = {n:,}", threads_text(threads)) for n, threads in columns],
        "rows": {cls: [at.get((cls, *column)) for column in columns] for cls in classes},
    }


def _losses(games: list[Match]) -> list[str]:
    lost = sorted((game for game in games if game.lost), key=lambda game: game.lead or 1.0)
    return [
        f"{game.cls}, n = {game.n:,}, {threads_text(game.threads)}:"
        f" {game.rival} {seconds_text(game.rival_seconds)} s, {game.solver}"
        f" {seconds_text(game.seconds)} s ({_times(1 / (game.lead or 1.0))} slower)"
        for game in lost
    ]
