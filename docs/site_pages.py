"""What the site shows that no file in docs/ holds: files from elsewhere, and pages made from the code.

A comment alone on a line of a page is replaced when Sphinx reads the page:

``<!-- file: ARCHITECTURE.md -->``
    by that file of the repository; the page must contain nothing else.
``<!-- made: commands -->``
    by what ``site_reference`` makes under that name.

Links are those of files in the repository. They are rewritten to lead to the pages of the site.
"""

from __future__ import annotations

import dataclasses
import os
import re
from functools import cache
from pathlib import Path

import site_reference

DOCS = Path(__file__).parent
ROOT = DOCS.parent
FILE = re.compile(r"^<!-- file: (.+) -->$", re.M)
MADE = re.compile(r"^<!-- made: (\w+) -->$", re.M)
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
#: Folders and files that a page of another name shows.
ELSEWHERE = {
    ROOT / "README.md": DOCS / "index.md",
    DOCS / "decisions": DOCS / "developers" / "decisions.md",
    DOCS / "lab": DOCS / "developers" / "lab.md",
    DOCS / "lab" / "README.md": DOCS / "developers" / "lab.md",
}


@cache
def shown_files() -> dict[Path, Path]:
    """The page that shows each file of the repository from outside docs/."""
    found = dict(ELSEWHERE)
    for page in DOCS.rglob("*.md"):
        line = FILE.search(page.read_text())
        if line:
            found[ROOT / line[1]] = page
    return found


def with_links(text: str, file: Path, page: Path) -> str:
    """The text of a file with its links as the page needs them."""

    def changed(link: re.Match[str]) -> str:
        target, hash_, anchor = link[1].partition("#")
        if re.match(r"\w+:", link[1]) or not target:
            return link[0]
        there = Path(os.path.normpath(file.parent / target))
        there = shown_files().get(there, there)
        return f"]({os.path.relpath(there, page.parent)}{hash_}{anchor})"

    return LINK.sub(changed, text)


def read(app, docname: str, source: list[str]) -> None:
    """Fill in a page's file or made parts, and rewrite its links."""
    page = DOCS / f"{docname}.md"
    line = FILE.search(source[0])
    file = ROOT / line[1] if line else page
    text = file.read_text() if line else source[0]
    if line:
        app.env.note_dependency(str(file))
    text = with_links(text, file, page)
    source[0] = MADE.sub(lambda made: site_reference.made(made[1]), text)


def docstring(app, what: str, name: str, thing, options, lines: list[str]) -> None:
    """Show ``name: what it is`` of a docstring as a list of parameters or fields."""
    fields = site_reference.fields_of(thing)
    role = "param" if what in ("function", "method") else "ivar"
    lines[:] = site_reference.with_fields(lines, fields, role)


def signature(app, what: str, name: str, thing, options, given, returned):
    """Leave out the signature of a class that users do not call: its fields are explained below."""
    return ("", "") if dataclasses.is_dataclass(thing) and thing.__name__ != "RowCache" else None


#: What the theme's pages lack for readers who use a keyboard or a screen reader.
ACCESS = (
    (re.compile(r'<p class="caption" role="heading">'), '<p class="caption" role="heading" aria-level="2">'),
    (re.compile(r'<aside class="sidebar-drawer">'), '<aside class="sidebar-drawer" aria-label="Site">'),
    (re.compile(r'<aside class="toc-drawer'), '<aside aria-label="On this page" class="toc-drawer'),
    # What scrolls by itself must be reached by the keyboard.
    (re.compile(r"<pre(?=[ >])"), '<pre tabindex="0"'),
    (re.compile(r'<div class="table-wrapper'), '<div tabindex="0" class="table-wrapper'),
    (re.compile(r'<th class="head[^"]*">(<p></p>)?</th>'), "<td></td>"),
    # Of the page of the search, which has no heading.
    (re.compile(r'(?<!</h1>)<div id="search-results">'), '<h1>Search</h1><div id="search-results">'),
)
#: A signature of several lines, which Sphinx writes as a list of definitions without terms.
LINES = re.compile(r"<dl>\n((?:<dd>.*</dd>\n)+)</dl>\n")


def polish(app, exception) -> None:
    """Mend the pages that were built."""
    if exception is not None or app.builder.format != "html":
        return
    for file in Path(app.outdir).rglob("*.html"):
        text = old = file.read_text()
        for pattern, new in ACCESS:
            text = pattern.sub(new, text)
        text = LINES.sub(lambda found: re.sub(r"<(/?)dd>", _line, found[1]), text)
        if text != old:
            file.write_text(text)


def _line(tag: re.Match[str]) -> str:
    return "</span>" if tag[1] else '<span class="sig-line">'


def setup(app) -> None:
    """Connect to Sphinx."""
    app.connect("autodoc-process-signature", signature)
    app.connect("build-finished", polish)
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", docstring)
