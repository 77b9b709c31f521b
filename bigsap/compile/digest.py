"""Digest of a kernel's content: all modules that its module imports within bigsap.

A callee or a constant of another module is compiled into the caller, so a change there changes the
caller's kernel. The digest uses a module's syntax tree without docstrings: comments, docstrings and
layout may change freely. File times do not count: a checkout of the same code, a copy and an
installed package have the same kernels.
"""

from __future__ import annotations

import ast
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bigsap.compile import kernel_files
from bigsap.compile.parsing import parsed

#: The folder above the package.
ROOT = Path(__file__).resolve().parents[2]
_PACKAGE = Path(__file__).resolve().parents[1].name
#: File of cached results by the digest of the text: parsing takes 10 ms a module.
_SUMMARIES = "syntax.json"
_VERSION = "1"


@dataclass(frozen=True)
class _Module:
    """Parsed data of a module.

    digest: of the syntax tree. imported: names that may be modules, also below ``if`` and within
    functions (too many are harmless).
    """

    digest: str
    imported: frozenset[str]


def content(module: str) -> str | None:
    """Return a digest of a module's code and of all that it imports from bigsap.

    None if the module is not part of bigsap. Modules are those below ``bigsap``; a package's
    ``__init__`` counts only if it is named.
    """
    if _module(module) is None:
        return None
    seen, waiting = {module}, [module]
    while waiting:
        for name in imports_of(waiting.pop()) - seen:
            seen.add(name)
            waiting.append(name)
    digest = hashlib.sha256()
    for name in sorted(seen):
        found = _module(name)
        digest.update(f"{name}\n{found.digest if found else ''}\n".encode())
    _save()
    return digest.hexdigest()


@cache
def imports_of(module: str) -> frozenset[str]:
    """Return the modules of bigsap that a module imports directly."""
    found = _module(module)
    names = frozenset() if found is None else found.imported
    return frozenset(name for name in names if _module(name) is not None)


@cache
def _module(name: str) -> _Module | None:
    text = _text(name)
    if text is None:
        return None
    key = hashlib.sha256(text).hexdigest()
    known = _known()
    if key not in known:
        tree = parsed(text)
        known[key] = [digest_of(tree), *sorted(_imported(tree))]
        _new.append(key)
    digest, *imported = known[key]
    return _Module(digest, frozenset(imported))


def _text(module: str) -> bytes | None:
    first, *rest = module.split(".")
    # The package itself imports the whole public interface, but nothing that is linked.
    if first != _PACKAGE or not rest:
        return None
    path = ROOT.joinpath(first, *rest)
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        try:
            return file.read_bytes()
        except OSError:
            continue
    return None


def digest_of(tree: ast.Module) -> str:
    """Return the digest of a syntax tree; removes its docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                del node.body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _imported(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # A name imported from a package may be a module.
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return {name for name in found if name.partition(".")[0] == _PACKAGE}


# -- summaries of modules, saved beside the kernels ------------------------------------

#: Whether this process saves its summaries beside the kernels of this machine.
keeps = True
_new: list[str] = []


@cache
def _known() -> dict[str, list[str]]:
    """Return the saved summaries: digest of a tree and its imports, by the digest of the text."""
    found: dict[str, list[str]] = {}
    for folder in (kernel_files.BUILT, kernel_files.kept_in()):
        if folder is None:
            continue
        try:
            kept = json.loads((folder / _SUMMARIES).read_text(encoding="utf-8"))
            if kept["version"] == _VERSION:
                found |= kept["modules"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # missing or damaged: parse again
    return found


def _save() -> None:
    folder = kernel_files.kept_in()
    if _new and keeps and folder is not None:
        _new.clear()
        write_summaries(folder)


def write_summaries(folder: Path) -> None:
    """Save the summaries in a folder of kernels. A failure costs only time."""
    kept = {"version": _VERSION, "modules": _known()}
    kernel_files.write_file(folder / _SUMMARIES, json.dumps(kept).encode())
