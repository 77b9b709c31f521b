"""The text of an expression: its tokens, Python's parser, and errors with a caret."""

from __future__ import annotations

import ast
import re

from bigsap.compile.parsing import parsed
from bigsap.errors import ExpressionError
from bigsap.sources.expression.syntax_tree import MAX_DEPTH, MAX_LENGTH

# The tokens of the language. A number must not touch a name (Python only warns). Operators that the
# language lacks are left to the checker, which has better messages.
_TOKEN = re.compile(
    r"""\ +
    | (?: 0[xX][0-9a-fA-F_]+ | (?: [0-9][0-9_]*\.?[0-9_]* | \.[0-9][0-9_]* )
                               (?: [eE][+-]?[0-9_]+ )? ) (?![A-Za-z_.])
    | [A-Za-z_][A-Za-z0-9_]*
    | [-+*/%<>=!()\[\],.:&|^~@{}]""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"\.?[0-9]")


def read(code: str) -> tuple[ast.expr, str, int]:
    """Return Python's tree of a text, the text as one line, and the tree's position in it.

    Raises ExpressionError. The limit on length is tested first: shorter texts cannot exhaust the
    parser, whose own limits are errors too.
    """
    if not isinstance(code, str):
        raise ExpressionError(f"an expression must be a string, got {type(code).__name__}")
    if len(code) > MAX_LENGTH:
        raise ExpressionError(f"the expression has {len(code)} characters; at most {MAX_LENGTH} are allowed")
    line = re.sub(r"[\t\r\n]", " ", code)
    _check_tokens(line)
    start = len(line) - len(line.lstrip())
    if start == len(line):
        raise ExpressionError("the expression is empty", 1)
    try:
        body = parsed(line[start:], "<expression>", "eval").body
    except SyntaxError as error:
        raise failure(line, start + _place(error, line[start:]), error.msg) from None
    except (RecursionError, MemoryError):
        raise ExpressionError(
            f"the expression is nested too deeply; at most {MAX_DEPTH} levels are allowed"
        ) from None
    except ValueError as error:
        raise failure(line, 1, str(error)) from None
    return body, line, start


def _place(error: SyntaxError, text: str) -> int:
    """Return the offending column, from 1.

    For a missing part it is the end: Python reports the beginning of an ``if`` without ``else``,
    and nothing at the end of the text.
    """
    if not error.offset:
        return len(text.rstrip()) + 1
    return (error.end_offset if "expected 'else'" in error.msg else None) or error.offset


def failure(line: str, column: int, what: str) -> ExpressionError:
    """Return an error with the text and a caret under its ``column`` (counted from 1)."""
    first = max(0, column - 60)
    shown = line[first : first + 90].rstrip()
    caret = " " * (column - 1 - first) + "^"
    return ExpressionError(f"expression, column {column}: {what}\n    {shown}\n    {caret}", column)


def _check_tokens(line: str) -> None:
    at = 0
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None:
            what = f"unexpected {line[at]!r}"
            if line[at] in "'\"":
                what = "strings are not allowed"
            elif not line[at].isascii():
                what = f"unexpected {line[at]!r}; names are written in ASCII"
            elif _NUMBER.match(line, at):
                what = "not a number of this language (no letters, at most one point)"
            raise failure(line, at + 1, what)
        at = token.end()
