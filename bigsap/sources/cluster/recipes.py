"""Recipes: sources as bytes, from which a worker builds them again.

A recipe is the source pickled by cloudpickle: the caller's own code for the caller's own cluster.
Objects that belong to one process (locks, compiled code, connections, maps of files) are left out
and made again on the worker. If a source has an attribute ``made_again``, a pair ``(function,
arguments)``, that call is its recipe. The service uses it to send its workers the specs of its
clients, which each worker checks and builds for itself.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.errors import BigsapError, OptionError, StoreError
from bigsap.sources.arrays.mapped import place_of
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource
from bigsap.sources.functions.callbacks import FunctionSource, function_again
from bigsap.sources.functions.carried import state_of, text_of
from bigsap.sources.http.http_rows import HttpSource
from bigsap.sources.zarr.decoded import DecodedZarrSource
from bigsap.sources.zarr.raw import RawZarrSource


class LiesHereError(Exception):
    """Raised for costs in the memory of this process: all of them would have to be sent to workers."""


def recipe_of(source: CostSource) -> bytes:
    """Return the recipe of a source. Raises LiesHereError, OptionError if it cannot be sent.

    O(size of the source's data): points, factors, arrays of an expression.
    """
    import cloudpickle

    here, elsewhere = 0, False

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            nonlocal here, elsewhere
            if type(obj) is ArraySource and not obj.mapped:
                here += obj.array.nbytes
                if obj is source or here > policy.MOST_SENT:
                    raise LiesHereError
                return ArraySource, (np.ascontiguousarray(obj.array), obj._what)
            elsewhere = elsewhere or _made_by_python(obj)
            found = _reduced(obj)
            return super().reducer_override(obj) if found is None else found

    room = io.BytesIO()
    try:
        Pickler(room).dump(source)
    except (BigsapError, LiesHereError):
        raise
    except Exception as error:
        raise OptionError(
            f"{source!r} cannot be sent to the workers of a cluster: {type(error).__name__}:"
            f" {error}; pass a path, an address, a function or one of BigSAP's own sources"
        ) from error
    if here and not elsewhere:
        raise LiesHereError
    return room.getvalue()


def _made_by_python(obj: Any) -> bool:
    """Return whether an object is a source whose rows workers can evaluate as well as this process."""
    kind = type(obj)
    if kind in (DecodedZarrSource, RawZarrSource, HttpSource, FunctionSource):
        return True
    return hasattr(kind, "read") and not kind.__module__.startswith("bigsap.")


def followed(recipe: bytes) -> CostSource:
    """Build the source that a recipe describes."""
    import cloudpickle

    source: CostSource = cloudpickle.loads(recipe)
    return source


def _reduced(obj: Any) -> Any:
    """Return the replacement of an object that belongs to this process; None for all others."""
    kind = type(obj)
    again = getattr(obj, "made_again", None) if hasattr(kind, "read") else None
    if kind is HttpSource:
        return _same_provider, (obj.fingerprint(), *(again or obj.__reduce__()))
    if again is not None:
        return again
    if kind is ArraySource and place_of(obj.array) is None:
        raise LiesHereError
    if kind is FunctionSource:
        return function_again, (state_of(obj), text_of(obj))
    if kind in _LOCAL:
        return _LOCAL[kind], ()
    return None


def _same_provider(fingerprint: str, again: Callable[..., HttpSource], args: tuple[Any, ...]) -> HttpSource:
    """Return the source opened again; refuse other data than the caller's."""
    source = again(*args)
    if source.fingerprint() != fingerprint:
        raise StoreError(f"{source!r}: the provider's data changed since the source was made; start again")
    return source


_LOCAL: dict[type, Any] = {
    type(threading.Lock()): threading.Lock,
    type(threading.RLock()): threading.RLock,
    threading.local: threading.local,
}
