"""How a source is built again on a worker: its recipe, as bytes.

A recipe is the source pickled by cloudpickle, the caller's own code for the caller's own
cluster, without what belongs to one process: locks, compiled code, connections, maps of files.
These are made again where the recipe is followed. A source with an attribute ``made_again``, a
pair ``(function, arguments)``, is not looked into: the call is its recipe. So the service sends its
workers what clients send it, specs, which each worker judges and builds for itself.
"""

from __future__ import annotations

import io
import linecache
import os
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np

from bigsap.errors import BigsapError, OptionError, StoreError
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource, Fill, Waiting
from bigsap.sources.functions.callbacks import FunctionSource
from bigsap.sources.remote.http_rows import HttpSource, from_http
from bigsap.sources.zarr.decoded import DecodedZarrSource
from bigsap.sources.zarr.raw import RawZarrSource

#: Matrices in memory that are part of the costs, such as the mask of a function's, are sent
#: along up to this size.
_MOST_SENT = 256 << 20


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
                if obj is source or here > _MOST_SENT:
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
    if kind is ArraySource:
        return _open_map, _map_of(obj)
    if kind in (DecodedZarrSource, RawZarrSource):
        return kind, (obj._layout,)
    if kind is HttpSource:
        return _reach, _provider_of(obj)
    if kind is FunctionSource:
        return _function_again, (_state_of(obj), _text_of(obj))
    if kind is Fill:
        return _nothing, ()
    if kind is Waiting:
        return Waiting, ()
    if kind in _LOCAL:
        return _LOCAL[kind], ()
    if kind.__module__.startswith("bigsap.sources.") and hasattr(obj, "read"):
        return _again, (kind,), vars(obj)
    return None


_LOCAL: dict[type, Any] = {
    type(threading.Lock()): threading.Lock,
    type(threading.RLock()): threading.RLock,
    threading.local: threading.local,
}


def _nothing() -> None:
    """Compiled code is looked for, or made, where it is needed."""


def _again(kind: type) -> Any:
    """An instance without its fields; what a class does in ``__new__`` was done before."""
    return object.__new__(kind)


def _map_of(source: ArraySource) -> tuple[Any, ...]:
    """File, offset and layout of a mapped matrix."""
    found: Any = source.array
    while found is not None and not isinstance(found, np.memmap):
        found = getattr(found, "base", None)
    array = source.array
    if found is None or found.filename is None or not source.mapped:
        raise LiesHereError
    offset = found.offset + _address(array) - _address(found)
    file = os.path.abspath(found.filename)
    return file, offset, array.dtype, array.shape, array.strides, source._what


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _open_map(
    file: str, offset: int, dtype: Any, shape: tuple[int, int], strides: tuple[int, int], what: str
) -> ArraySource:
    n_bytes = (shape[0] - 1) * strides[0] + (shape[1] - 1) * strides[1] + dtype.itemsize
    if not Path(file).is_file() or Path(file).stat().st_size < offset + n_bytes:
        raise StoreError(f"{what} is not there, or shorter, where a worker looks: {file}")
    flat = np.memmap(file, np.uint8, "r", offset, (n_bytes,))
    return ArraySource(np.ndarray(shape, dtype, flat, 0, strides), what)


def _provider_of(source: HttpSource) -> tuple[Any, ...]:
    wire = source._wire
    if not wire._own:
        raise OptionError(
            "from_http with a client of your own cannot be sent to the workers of a cluster: the"
            " client's connections are this process's"
        )
    fetcher = source._fetcher
    known = (source.shape, source._known.dtype, dict(wire._headers), wire._timeout, wire._retries)
    return wire.url, *known, fetcher.in_flight, fetcher.block_rows


def _reach(
    url: str, shape: tuple[int, int], dtype: Any, headers: Any, timeout: float, retries: int,
    in_flight: int, block_rows: int,
) -> CostSource:  # fmt: skip
    return from_http(
        url, shape, dtype, headers=headers, timeout=timeout, retries=retries,
        in_flight=in_flight, block_rows=block_rows,
    )  # fmt: skip


def _state_of(source: FunctionSource) -> dict[str, Any]:
    """The fields of a source of a function, but for what was compiled."""
    own = {"_translation": None, "_decided": source._decided and source._translation is None}
    return {**vars(source), **own, "_expected": source.evaluated_by}


def _text_of(source: FunctionSource) -> tuple[str, list[str]] | None:
    """The file of a lambda and its lines: its formula is read from them."""
    function = source.function
    if not isinstance(function, types.FunctionType) or source.evaluated_by != "expression":
        return None
    name = function.__code__.co_filename
    return name, linecache.getlines(name)


def _function_again(state: dict[str, Any], text: tuple[str, list[str]] | None) -> FunctionSource:
    if text is not None:
        # The code comes without the name of its file, and this machine's may have another text.
        name, lines = f"<sent: {text[0]}>", text[1]
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
        function = state["function"]
        function.__code__ = function.__code__.replace(co_filename=name)
    source: FunctionSource = object.__new__(FunctionSource)
    vars(source).update(state)
    expected = vars(source).pop("_expected")
    if expected is not None:
        source.translation()
        if source.evaluated_by != expected:
            raise OptionError(
                f"{source!r} is evaluated by {source.evaluated_by} on a worker and by {expected}"
                " where it was called, which may round otherwise; are the same packages there?"
            )
    return source
