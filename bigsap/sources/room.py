"""The output array for a user's function; it refuses masked values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bigsap.errors import InvalidCostError
from bigsap.sources.missing import mask_of, parted, plain_items, under_mask

_Array: TypeAlias = npt.NDArray[Any]


class Room(np.ndarray):
    """The output array for a user's function: writing masked values raises an error.

    A plain array would accept the values under the mask. (numpy still does in two cases: through
    ``numpy.asarray`` of this array, and if a masked array writes to ``out=``, as in
    ``numpy.take(masked, ids, out=out)``.) ``lost(k, p)`` makes the exception for the first masked
    item, at position ``k, p`` of the whole, or None for an item of a copy.
    """

    _lost: Callable[[int | None, int | None], Exception] | None
    _begin: int
    _row_bytes: int
    _size: int

    def __array_finalize__(self, whole: Any) -> None:
        self._lost = getattr(whole, "_lost", None)
        self._begin = getattr(whole, "_begin", 0)
        self._row_bytes = getattr(whole, "_row_bytes", 0)
        self._size = getattr(whole, "_size", 0)

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(value) is not np.ndarray and self._lost is not None:
            value, missing = _masked_of(value)
            if missing is not None:
                self._complain(key, missing)
        super().__setitem__(key, value)

    def _complain(self, key: Any, missing: _Array) -> None:
        assert self._lost is not None
        begin = self.__array_interface__["data"][0] - self._begin
        places = np.full(self.shape, begin, np.int64)
        for axis, step in enumerate(self.strides):
            shape = [1] * self.ndim
            shape[axis] = -1
            places += step * np.arange(self.shape[axis]).reshape(shape)
        target = np.asarray(places[key])
        hit = target[np.broadcast_to(missing, target.shape)]
        if hit.size:
            first = int(hit.flat[0])
            if not 0 <= first < self._size:  # an item of a copy
                raise self._lost(None, None)
            row, rest = divmod(first, self._row_bytes)
            raise self._lost(row, rest // self.itemsize)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [v.view(np.ndarray) if isinstance(v, Room) else v for v in inputs]
        rooms: Any = options.pop("out", None) or ()
        if rooms and any(mask_of(value) is not None for value in inputs):
            # Computed separately, then written as masked arrays are.
            where = np.broadcast_to(options.pop("where", True), rooms[0].shape)
            result = np.ma.asarray(getattr(np.ma, ufunc.__name__, ufunc)(*plain))
            rooms[0][where] = np.broadcast_to(result, where.shape, subok=True)[where]
            return rooms[0]
        if rooms:
            options["out"] = tuple(v.view(np.ndarray) if isinstance(v, Room) else v for v in rooms)
        found = getattr(ufunc, method)(*plain, **options)
        return rooms[0] if len(rooms) == 1 else found

    def __array_function__(self, function: Any, kinds: Any, args: Any, options: Any) -> Any:
        if not _holds_masked((args, options)):
            return super().__array_function__(function, kinds, args, options)
        if args and args[0] is self:
            # put, place, copyto and others: find the items written from masked values.
            hit = np.zeros(self.shape, np.bool_)
            function(hit, *map(_its_mask, args[1:]), **{k: _its_mask(v) for k, v in options.items()})
            self._complain(Ellipsis, hit)
        return super().__array_function__(function, kinds, args, options)

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        """Write items as ``numpy.ndarray.put`` does; refuse masked values."""
        plain, missing = _masked_of(values)
        if missing is not None:
            hit = np.zeros(self.shape, np.bool_)
            hit.put(indices, missing, mode)
            self._complain(Ellipsis, hit)
        super().put(indices, plain, mode)

    @property
    def flat(self) -> Any:
        """The items in order; see ``_Flat``."""
        return _Flat(self)

    @flat.setter
    def flat(self, values: Any) -> None:
        _Flat(self)[:] = values


class _Flat:
    """The ``flat`` iterator of ``Room``, which checks written values."""

    def __init__(self, whole: Room) -> None:
        self._whole = whole
        self._plain = whole.view(np.ndarray).flat

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def __getitem__(self, key: Any) -> Any:
        return self._plain[key]

    def __len__(self) -> int:
        return len(self._plain)

    def __iter__(self) -> Any:
        return iter(self._plain)

    def __next__(self) -> Any:
        return next(self._plain)

    def __setitem__(self, key: Any, value: Any) -> None:
        plain, missing = _masked_of(value)
        if missing is not None:
            hit = np.zeros(self._whole.shape, np.bool_)
            hit.flat[key] = missing
            self._whole._complain(Ellipsis, hit)
        self._plain[key] = plain


def _holds_masked(value: Any) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return mask_of(value) is not None
    return any(map(_holds_masked, value))


def _its_mask(value: Any) -> Any:
    """Return the mask of masked values, for the same call with masks in place of values."""
    if not _holds_masked(value):
        return value
    plain, missing = _masked_of(value)
    return np.zeros(np.shape(plain), np.bool_) if missing is None else missing


def _masked_of(value: Any) -> tuple[Any, _Array | None]:
    """Return an assigned value, and where it is masked."""
    mask = mask_of(value)
    if mask is not None:
        return under_mask(value), (mask if mask.any() else None)
    if not isinstance(value, (list, tuple)):
        return value, None
    plain = plain_items([value])
    if plain[0] is value:
        return value, None
    found, missing = parted(plain, "what was written")
    return found[0], None if missing is None else missing[0]


def room(out: _Array, lost: Callable[[int | None, int | None], Exception]) -> _Array:
    """Return ``out``, C-contiguous rows (k, p), as ``Room``."""
    found = out.view(Room)
    found._lost = lost
    found._begin = out.__array_interface__["data"][0]
    found._row_bytes = out.strides[0] or 1
    found._size = found._row_bytes * len(out)
    return found


def room_of(source: Any, rows: Any, columns: slice, out: _Array) -> _Array:
    """Return ``out`` for the ``read`` of a user's own source."""

    def lost(k: int | None, p: int | None) -> InvalidCostError:
        row = None if k is None else int(rows[k])
        column = None if p is None else columns.start + p
        place = "a cost" if row is None else f"cost[{row}, {column}]"
        return InvalidCostError(
            f"{place} is missing: {type(source).__qualname__}.read wrote a masked value; write"
            " numpy.inf (-numpy.inf under maximize) to forbid a pair",
            row,
            column,
        )

    return room(out, lost)
