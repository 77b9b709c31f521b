"""How a source is built again on a worker: its recipe, as bytes.

A recipe is the source pickled by cloudpickle, the caller's own code for the caller's own
cluster, without what belongs to one process: locks, compiled code, connections, maps of files.
These are made again where the recipe is followed. A source with an attribute ``made_again``, a
pair ``(function, arguments)``, is not looked into: the call is its recipe. So the service sends its
workers what clients send it, specs, which each worker judges and builds for itself.
"""

from __future__ import annotations

import io
import threading
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.errors import BigsapError, OptionError
from bigsap.sources.arrays.mapped import place_of
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource
from bigsap.sources.functions.callbacks import FunctionSource, function_again
from bigsap.sources.functions.carried import state_of, text_of
from bigsap.sources.http.http_rows import HttpSource
from bigsap.sources.zarr.decoded import DecodedZarrSource
from bigsap.sources.zarr.raw import RawZarrSource


class LiesHereError(Exception):
    """Costs in the memory of this process: workers would have to be sent all of them."""


def recipe_of(source: CostSource) -> bytes:
    """The recipe of a source. Raises LiesHereError, OptionError for what cannot be sent.

    O(size of what the source holds): points, factors, arrays of an expression.
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
    """Whether it is a source of rows that workers can make as well as this process."""
    kind = type(obj)
    if kind in (DecodedZarrSource, RawZarrSource, HttpSource, FunctionSource):
        return True
    return hasattr(kind, "read") and not kind.__module__.startswith("bigsap.")


def followed(recipe: bytes) -> CostSource:
    """The source that a recipe describes."""
    import cloudpickle

    source: CostSource = cloudpickle.loads(recipe)
    return source


def _reduced(obj: Any) -> Any:
    """What stands for an object that belongs to this process; None for all others."""
    kind = type(obj)
    again = getattr(obj, "made_again", None) if hasattr(kind, "read") else None
    if again is not None:
        return again
    if kind is ArraySource and place_of(obj.array) is None:
        raise LiesHereError
    if kind is FunctionSource:
        return function_again, (state_of(obj), text_of(obj))
    if kind in _LOCAL:
        return _LOCAL[kind], ()
    return None


_LOCAL: dict[type, Any] = {
    type(threading.Lock()): threading.Lock,
    type(threading.RLock()): threading.RLock,
    threading.local: threading.local,
}
