"""The report's Markdown as HTML: headings, tables, lists and paragraphs; verdicts are marked."""

from __future__ import annotations

import re
from html import escape

#: What a cell says that somebody should look at, and what says that all is well.
BAD = re.compile(r"MISSED|WRONG|NO|ANOTHER|failed")
GOOD = re.compile(r"met|yes|same")
_PICTURE = re.compile(r"!\[.*\]\(.*\)")


def inline(text: str) -> str:
    """Escaped; ``code`` and [links](to) become elements."""
    found = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    # Only addresses: a file beside the report need not be beside the page.
    return re.sub(r"\[([^\]]+)\]\((https://[^)]+)\)", r'<a href="\2">\1</a>', found)


def html(markdown: str, level: int = 2) -> str:
    """Blocks apart by empty lines; headings sink by ``level`` - 2. Pictures are left out."""
    blocks = re.split(r"\n{2,}", markdown.strip())
    return "\n".join(_block(block, level - 2) for block in blocks if not _PICTURE.match(block))


def _block(block: str, deeper: int) -> str:
    lines = block.split("\n")
    heading = re.match(r"(#+) (.*)", lines[0])
    if heading:
        size = min(6, len(heading[1]) + deeper)
        return f"<h{size}>{inline(heading[2])}</h{size}>"
    if lines[0].startswith("|"):
        return table(lines)
    if lines[0].startswith("- "):
        items = re.split(r"^- ", block, flags=re.M)[1:]
        return "<ul>" + "".join(f"<li>{inline(' '.join(i.split()))}</li>" for i in items) + "</ul>"
    return f"<p>{inline(' '.join(lines))}</p>"


def table(lines: list[str]) -> str:
    """A Markdown table, which scrolls by itself where it is wider than the page."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    head, _, *body = rows
    parts = [f'<th scope="col">{inline(cell)}</th>' for cell in head]
    text = [f"<thead><tr>{''.join(parts)}</tr></thead><tbody>"]
    for first, *others in body:
        cells = "".join(f"<td{_kind(cell)}>{inline(cell)}</td>" for cell in others)
        text.append(f'<tr><th scope="row">{inline(first)}</th>{cells}</tr>')
    label = escape(f"Table: {', '.join(head)}")
    # What scrolls has to be reached by the keyboard.
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{label}">'
        f"<table>{''.join(text)}</tbody></table></div>"
    )


def _kind(cell: str) -> str:
    if BAD.fullmatch(cell):
        return ' class="bad"'
    return ' class="good"' if GOOD.fullmatch(cell) else ""
