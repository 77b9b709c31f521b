"""The stand-in for CuPy is loaded for these tests alone."""

from __future__ import annotations

from stand_in import cupy

__all__ = ["cupy"]
