"""The report as one HTML page: charts, losses marked, every table; no script, nothing fetched."""

from __future__ import annotations

from html import escape
from pathlib import Path
from statistics import median

from benchmarks import curve, machine, markup, page_charts
from benchmarks.contest import Match, matches
from benchmarks.records import Log
from benchmarks.report import DASH, seconds_text

#: Title and Markdown of an experiment, by its name.
Sections = dict[str, tuple[str, str]]
_STYLE = Path(__file__).parent / "page.css"
# The strongest leads and losses get the strongest colours: times faster, or slower.
_STRONG, _CLEAR = 4.0, 2.0


def page(log: Log, sections: Sections, date: str | None = None) -> str:
    """The whole page as text. date: of the run, as people read it.

    Everything is inline and the page's own policy forbids all else, so that it can be kept,
    mailed or put behind any address.
    """
    games = matches(log)
    facts = markup.html("\n".join(machine.lines(log)))
    parts = [
        _header(log, date),
        f'<section aria-label="In short" class="tiles">{_tiles(log, sections, games)}</section>',
        _section("contest", "Against other solvers", _contest(games)),
        _section("losses", "Where others are faster", _losses(sections, games)),
        _section("by-class", "Seconds by class and size", _by_class(log)),
        _section("points", "Points without a matrix", page_charts.points_by_size(log)),
        _section("paper", "Against the paper's counts", page_charts.against_the_paper(log)),
        _section("caches", "Rows computed when needed", page_charts.by_cache(log)),
        _section("tables", "All tables", _tables(sections)),
        _section("machine", "Machine and versions", facts),
    ]
    found = [part for part in parts if part]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>BigSAP, measured</title><style>{_css(log)}</style></head>\n<body>"
        f'{found[0]}<main data-page="report">\n' + "\n".join(found[1:]) + "\n</main></body></html>\n"
    )


def _css(log: Log) -> str:
    """The sheet, and which charts a choice of threads shows."""
    rules = (
        f"#threads-{t}:checked~.choices label[for=threads-{t}]{{background:var(--accent);"
        f"color:var(--on-accent)}}#threads-{t}:focus-visible~.choices label[for=threads-{t}]"
        f"{{outline:3px solid var(--edge);outline-offset:2px}}"
        f"#threads-{t}:checked~.panel-{t}{{display:block}}"
        for t in page_charts.thread_counts(log)
    )
    return _STYLE.read_text() + "".join(rules)


def _header(log: Log, date: str | None) -> str:
    facts = log.header
    day = f" on {escape(date)}" if date else ""
    sizes = "" if log.judged else f' <strong class="warn">Sizes: {escape(facts["scale"])}.</strong>'
    return (
        f"<header><h1>BigSAP, measured</h1><p>bigsap {escape(facts['bigsap'])} (code"
        f" {escape(facts['code'])}) with {facts['threads']} of {facts['cores']} cores of"
        f" {escape(str(facts['cpu']))}{day}.{sizes} All seconds are of this machine.</p></header>"
    )


def _section(name: str, title: str, body: str) -> str:
    if not body:
        return ""
    return f'<section id="{name}"><h2>{escape(title)}</h2>{body}</section>'


# -- in short ---------------------------------------------------------------------------


def _tile(number: str, what: str, kind: str = "") -> str:
    text = f"<strong>{escape(number)}</strong><span>{escape(what)}</span>"
    return f'<div class="tile {kind}">{text}</div>'


def _tiles(log: Log, sections: Sections, games: list[Match]) -> str:
    found = []
    if games:
        lost = [game for game in games if game.lost]
        found.append(
            _tile(
                f"{len(games) - len(lost)} of {len(games)}",
                f"classes and sizes where {games[0].solver} is the fastest",
                "good",
            )
        )
        found.append(
            _tile(str(len(lost)), "lost to another solver; marked in red", "bad" if lost else "good")
        )
        leads = [game.lead for game in games if game.lead is not None]
        if leads:
            found.append(_tile(f"{median(leads):.1f}\u00d7", "median lead over the best other"))
    met, missed = _bars(sections)
    if met or missed:
        found.append(_tile(f"{met} of {met + len(missed)}", "bars met", "bad" if missed else "good"))
    solved = [r for r in log.of(experiment=curve.NAME, solver=curve.SOLVER) if "seconds" in r]
    if solved:
        most = max(solved, key=lambda r: int(r["n"]))
        found.append(
            _tile(
                f"{most['n']:,} points",
                f"without a matrix: {seconds_text(most['seconds'])} s,"
                f" {most['peak_bytes'] / 2**20:,.0f} MiB, {most['status']}",
            )
        )
    return "".join(found)


def _rows(markdown: str) -> list[tuple[list[str], list[str]]]:
    """(head, cells) of every row of the tables in a text."""
    found: list[tuple[list[str], list[str]]] = []
    head: list[str] = []
    for line in markdown.split("\n"):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            head = []
        elif not head:
            head = cells
        elif not set(line) <= set("|-: "):
            found.append((head, cells))
    return found


def _bars(sections: Sections) -> tuple[int, list[str]]:
    """How many bars were met, and each that was missed, in words."""
    met, missed = 0, []
    for title, text in sections.values():
        for head, cells in _rows(text):
            met += cells.count("met")
            if "MISSED" in cells:
                bar = head[cells.index("MISSED")]
                missed.append(f"{title}: {', '.join(cells[:2])} ({bar})")
    return met, missed


# -- won and lost -----------------------------------------------------------------------


def _times_text(lead: float) -> str:
    return f"{lead:.1f}\u00d7" if lead < 100 else f"{lead:.0f}\u00d7"


def _kind(game: Match) -> str:
    lead = game.lead
    if lead is None:
        return "even"
    size = lead if lead >= 1 else 1 / lead
    strength = 3 if size >= _STRONG else 2 if size >= _CLEAR else 1
    return f"{'lost' if game.lost else 'won'}-{strength}"


def _cell(game: Match) -> str:
    lead = game.lead
    if lead is None:
        said, who = DASH, "no other solver ended"
    elif game.lost:
        said, who = f"\u2717 {_times_text(1 / lead)} slower", f"than {game.rival}"
    elif game.rival is None:
        said, who = f"\u2713 over {_times_text(lead)}", "no other solver ended"
    else:
        said, who = f"\u2713 {_times_text(lead)} faster", f"than {game.rival}"
    ours = f"{seconds_text(game.seconds)} s"
    return (
        f'<td class="{_kind(game)}"><strong>{escape(said)}</strong><span>{escape(who)}</span>'
        f"<span>{ours}</span></td>"
    )


def _contest(games: list[Match]) -> str:
    """A table of classes against sizes and threads: by how much we lead or trail."""
    if not games:
        return ""
    columns = list(dict.fromkeys((game.n, game.threads) for game in games))
    at = {(game.cls, game.n, game.threads): game for game in games}
    head = "".join(
        f'<th scope="col">n = {n:,}<span>{t} thread{"s" if t > 1 else ""}</span></th>' for n, t in columns
    )
    body = "".join(
        f'<tr><th scope="row">{escape(cls)}</th>'
        + "".join(_cell(at[cls, *c]) if (cls, *c) in at else f"<td>{DASH}</td>" for c in columns)
        + "</tr>"
        for cls in dict.fromkeys(game.cls for game in games)
    )
    return (
        f"<p>{escape(games[0].solver)} against the best of the others, costs in memory, solve only,"
        " run in turn. Others were stopped when they had taken several times as long.</p>"
        '<div class="wide" tabindex="0" role="group" aria-label="Leads by class and size">'
        f'<table class="contest"><thead><tr><th scope="col">class</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _losses(sections: Sections, games: list[Match]) -> str:
    lost = sorted((game for game in games if game.lost), key=lambda game: game.lead or 1.0)
    items = [
        f"{game.cls}, n = {game.n:,}, {game.threads} thread{'s' if game.threads > 1 else ''}:"
        f" {game.rival} {seconds_text(game.rival_seconds)} s, {game.solver}"
        f" {seconds_text(game.seconds)} s ({_times_text(1 / (game.lead or 1.0))} slower)"
        for game in lost
    ]
    items += [f"Bar missed. {text}" for text in _bars(sections)[1]]
    if items:
        return '<ul class="losses">' + "".join(f"<li>{markup.inline(i)}</li>" for i in items) + "</ul>"
    if not games:
        return ""
    return f"<p>Than {escape(games[0].solver)}: in none of these. No bar was missed.</p>"


def _by_class(log: Log) -> str:
    """The charts of each number of threads, one at a time: chosen without a script."""
    panels = {t: text for t in page_charts.thread_counts(log) if (text := page_charts.by_class(log, t))}
    if not panels:
        return ""
    inputs, labels, bodies = [], [], []
    for k, (t, text) in enumerate(panels.items()):
        said = f"{t} thread{'s' if t > 1 else ''}"
        checked = ' checked=""' if k == len(panels) - 1 else ""
        inputs.append(f'<input type="radio" name="threads" id="threads-{t}"{checked}/>')
        labels.append(f'<label for="threads-{t}">{said}</label>')
        bodies.append(f'<div class="panel panel-{t}">{text}</div>')
    return (
        "<p>Both axes logarithmic, the same seconds in every chart. A red ring: another solver is"
        " faster. An arrow: stopped there. Point at a mark to read it.</p>"
        f'{"".join(inputs)}<div class="choices">{"".join(labels)}</div>{"".join(bodies)}'
    )


def _tables(sections: Sections) -> str:
    return "".join(
        f'<details id="{name}"><summary>{escape(title)}</summary>{markup.html(text)}</details>'
        for name, (title, text) in sections.items()
    )
