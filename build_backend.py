"""How pip builds BigSAP: setuptools, and numba where a wheel is to carry compiled kernels.

A wheel is pure unless ``BIGSAP_WHEEL_KERNELS`` chooses levels of processors: ``all``, or a list such
as ``v3`` or ``v2,v3,v4`` (default: ``none``). Only wheels have kernels: an editable installation and
a source distribution have none, and compile on first use, as a pure wheel does.
"""

from __future__ import annotations

import os
import platform
import tomllib
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def chosen_levels() -> str:
    """What ``python -m bigsap.building`` takes; empty for a wheel without kernels."""
    chosen = os.environ.get("BIGSAP_WHEEL_KERNELS", "") or "none"
    if chosen == "none":
        return ""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return "own"
    names = ("v2", "v3", "v4") if chosen == "all" else tuple(chosen.split(","))
    for name in names:
        if name not in ("v2", "v3", "v4"):
            raise SystemExit(
                f'BIGSAP_WHEEL_KERNELS must be "all", "none" or some of v2, v3, v4, got "{chosen}"'
            )
    return ",".join(f"x86-64-{name}" for name in names)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Those of setuptools; with kernels, what the package itself needs to run."""
    found: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    if chosen_levels():
        project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
        found += project["dependencies"]
    return found
