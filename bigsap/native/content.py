"""What a kernel is made of: the text of all modules that its module imports within bigsap.

A callee or a constant of another module is compiled into the caller, so the caller is another
kernel when one of them changes. Texts decide and not times: a checkout of the same text, a copy
or an installed package have the same kernels.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

#: The folder above the package.
ROOT = Path(__file__).resolve().parents[2]
_PACKAGE = Path(__file__).resolve().parents[1].name
# Imports below an ``if`` and within functions too: too many are harmless.
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(%b[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))"
    % _PACKAGE.encode(),
    re.MULTILINE,
)
_NAME = re.compile(rb"[\w.]+")


def content(module: str) -> str | None:
    """A digest of a module's text and those that it imports; None if it is none of bigsap's.

    Modules are those below ``bigsap``; packages' own ``__init__`` counts where it is named.
    """
    text, seen = _text(module), {module}
    if text is None:
        return None
    waiting = [module]
    while waiting:
        for name in _imported(waiting.pop()) - seen:
            seen.add(name)
            waiting.append(name)
    digest = hashlib.sha256()
    for name in sorted(seen):
        digest.update(f"{name}\n".encode())
        digest.update(hashlib.sha256(_text(name) or b"").digest())
    return digest.hexdigest()


@cache
def _text(module: str) -> bytes | None:
    first, *rest = module.split(".")
    # The package itself gathers what users see: everything, and nothing that is linked.
    if first != _PACKAGE or not rest:
        return None
    path = ROOT.joinpath(first, *rest)
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        try:
            return file.read_bytes()
        except OSError:
            continue
    return None


@cache
def _imported(module: str) -> frozenset[str]:
    found: set[str] = set()
    for origin, names, plain in _IMPORT.findall(_text(module) or b""):
        found |= {name.decode() for name in _NAME.findall(plain)}
        found.add(origin.decode())
        # What is imported from a package may be a module.
        found |= {f"{origin.decode()}.{name.decode()}" for name in _NAME.findall(names)}
    return frozenset(name for name in found if _text(name) is not None)
