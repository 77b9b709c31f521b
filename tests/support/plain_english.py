"""Check the English of docstrings, comments and documents: ``python tests/support/plain_english.py``.

Prints each line that breaks a rule, with the rule, and exits 1 if there is any. The rules are the ones
that the code base once broke most; spelling is checked by codespell beside it (``make lint``).
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

#: A docstring's first line is an imperative or a noun phrase that needs no other line.
FIRST_LINE = {
    r"(Of|As|That|Who|Whose|And|Or|With|Which|Passed on|Not)\b": "begins with neither verb nor noun",
    r"(What|How) ": "begins with a clause in place of a noun",
    r"(It|They|This|These) ": "begins with a pronoun",
}
#: Anywhere in docstrings, comments and documents.
ANYWHERE = {
    r"\bis no (longer )?\w+ (of|at all)\b": "say 'is not a'",
    r"\bthere is no such\b": "say 'not found'",
    r"\bdoes? not come\b": "say 'is missing' or 'timed out'",
    r"\bturns? an? \w+ round\b": "say 'reverses'",
    r"\bin vain\b": "say 'without effect' or 'needlessly'",
    r"\bnobody\b": "name who",
    r"\bsomebody\b": "name who",
    r"\bwhoever\b": "name who",
    r"\btold of\b": "say 'reported'",
    r"\bis hopeless\b": "say why",
    r"\bbears? (it|them) out\b": "say 'confirms'",
    r"\bat leisure\b": "say 'later'",
    r"\butilis|\butiliz": "say 'use'",
    r"\bin order to\b": "say 'to'",
    r"\b(very|really|basically|obviously|of course)\b": "leave the word out",
}
FOLDERS = ("bigsap", "server")
#: Most characters of a line of prose in a document: not of tables, code, or what cannot be broken.
WIDTH = 100


def files(*suffixes: str) -> list[Path]:
    """Tracked files with these endings."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in listed.splitlines() if name.endswith(suffixes)]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """First line number and text of each docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node.body[0].lineno, text


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Line number and text of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def broken() -> Iterator[str]:
    """One line for each rule that a place breaks."""
    for path in files(".py"):
        if path.parts[0] not in FOLDERS:
            continue
        source = path.read_text()
        texts = list(docstrings(ast.parse(source)))
        for number, text in texts:
            for rule, why in FIRST_LINE.items():
                if re.match(rule, text):
                    yield f"{path}:{number}: {why}: {text.splitlines()[0]}"
        for number, text in (*texts, *comments(source)):
            yield from words(path, number, text)
    for path in files(".md"):
        if path.parts[0] != "CHANGELOG.md" and not {"decisions", "lab"} & set(path.parts):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                yield from words(path, number, line)
        if path.parts[0] == "docs" or len(path.parts) == 1:
            yield from long_lines(path)


def long_lines(path: Path) -> Iterator[str]:
    """Lines of prose that are too long."""
    code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        breakable = not code and " " in line[:WIDTH].lstrip(" *-") and not line.lstrip().startswith("|")
        if breakable and len(line) > WIDTH and not line.startswith("    "):
            yield f"{path}:{number}: {len(line)} characters, at most {WIDTH}"


def words(path: Path, number: int, text: str) -> Iterator[str]:
    """Rules of single words that a text breaks."""
    for rule, why in ANYWHERE.items():
        for found in re.finditer(rule, text, re.IGNORECASE):
            yield f"{path}:{number + text[: found.start()].count(chr(10))}: '{found[0]}': {why}"


if __name__ == "__main__":
    lines = list(broken())
    print("\n".join(lines))
    sys.exit(bool(lines))
