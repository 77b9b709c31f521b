"""Arrays of other libraries: seen as numpy arrays, and answers given back in the same library.

DLPack and the names of the array API are used, so that no library is imported here: a caller with
such an array has imported its library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bigsap.errors import DtypeError, InputError

_Array: TypeAlias = npt.NDArray[Any]

#: kDLCUDA of DLPack.
CUDA = 2
# kDLCPU, kDLCUDAHost and kDLROCMHost: host memory, also that pinned for a device.
_HOST = (1, 3, 11)
# Type numbers of dtypes of other packages start here: bfloat16, float8, int4, ...
_FIRST_FOREIGN = 256


def speaks_dlpack(given: Any) -> bool:
    """Return whether an object must be read by DLPack: a tensor, or what numpy sees in no other way."""
    return is_tensor(given) or (_exports(given) and not hasattr(type(given), "__array__"))


def is_tensor(given: Any) -> bool:
    """Return whether an object is an array of another library than numpy that speaks DLPack."""
    # Of the class first: nested tensors of torch refuse to tell their shape.
    return _exports(given) and (hasattr(type(given), "shape") or hasattr(given, "shape"))


def _exports(given: Any) -> bool:
    kind = type(given)
    exports = hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__")
    return exports and not isinstance(given, np.ndarray)


def place_of(tensor: Any) -> tuple[int, int]:
    """Return the kind of device, and its number, where a tensor lies. DtypeError if it lies nowhere."""
    try:
        kind, number = tensor.__dlpack_device__()
    except Exception as error:  # a library's own: sparse, without memory, deleted
        raise _unseen(tensor, error) from error
    return int(kind), int(number)


def lies_on_host(tensor: Any) -> bool:
    """Return whether a tensor lies in host memory."""
    return place_of(tensor)[0] in _HOST


def without_gradient(tensor: Any) -> Any:
    """Return a tensor that may be read although a gradient is computed of it; no copy."""
    return tensor.detach() if getattr(tensor, "requires_grad", False) else tensor


def on_host(tensor: Any) -> _Array:
    """Return a tensor as a numpy array.

    A view where the tensor lies in host memory. A copy of a tensor on a device, once all work on it is
    done, and of number types that numpy lacks, which become wider ones. Gradients are ignored. Raises
    DtypeError if its library does not give the numbers.
    """
    tensor = without_gradient(tensor)
    here = lies_on_host(tensor)
    try:
        return _as_numpy(tensor if here else _copied(tensor))
    except (InputError, MemoryError, OSError):
        raise
    except Exception as error:  # a library's own
        raise _unseen(tensor, error) from error


def _unseen(tensor: Any, error: Exception) -> DtypeError:
    """Return the error about a tensor that numpy cannot see."""
    kind = type(tensor)
    advice = "pass a plain copy of it, as float64"
    if str(getattr(tensor, "layout", "")).startswith("torch.sparse"):
        advice = "pass bigsap.sparse((rows, columns, costs)), where only listed pairs are allowed"
    return DtypeError(
        f"{kind.__module__}.{kind.__qualname__} cannot be seen as a numpy array: {error}; {advice}"
    )


def _as_numpy(tensor: Any) -> _Array:
    try:
        found: _Array = np.asarray(np.from_dlpack(tensor))
    except (BufferError, RuntimeError, TypeError, ValueError):  # bfloat16, read-only memory
        # bfloat16 as float32.
        found = np.asarray(single(tensor) if _library(tensor) == "torch" else tensor)
    return widened(found)


def single(tensor: Any) -> Any:
    """Return a tensor as float32, where it lies: torch's by its own name for that."""
    if _library(tensor) == "torch":
        return tensor.float() if hasattr(tensor, "float") else tensor
    return tensor.astype(np.float32) if hasattr(tensor, "astype") else tensor


def widened(array: _Array) -> _Array:
    """Return numbers of another package's type as the least type of numpy's that holds them.

    An array of a type of numpy's is returned as it is.
    """
    if array.dtype.num < _FIRST_FOREIGN:
        return array
    wider = (np.dtype(name) for name in ("i4", "f4", "f8"))
    target = next((dtype for dtype in wider if np.can_cast(array.dtype, dtype, "safe")), None)
    return array if target is None else array.astype(target)


def _copied(tensor: Any) -> Any:
    """Copy a tensor from a device to the host: torch, CuPy, others."""
    for name in ("cpu", "get"):
        if callable(getattr(tensor, name, None)):
            return getattr(tensor, name)()
    return np.asarray(tensor)


def like(tensor: Any) -> Callable[[_Array], Any]:
    """Return a function that turns numpy arrays into arrays of a tensor's library, on its device.

    Host memory is shared, where the library does so. Without a known way the arrays stay numpy's.
    """
    device, name = getattr(tensor, "device", None), _library(tensor)
    module = sys.modules.get(name)
    if name == "torch" and module is not None:
        from_numpy = module.from_numpy
        return lambda array: _fitting(lambda one: from_numpy(np.ascontiguousarray(one)).to(device), array)
    if hasattr(tensor, "__array_namespace__"):
        module = tensor.__array_namespace__()
    asarray = getattr(module, "asarray", None)
    if asarray is None:
        return lambda array: array

    def converted(array: _Array) -> Any:
        if device is None:
            return asarray(array)
        try:
            return asarray(array, device=device)
        except TypeError:  # CuPy: the device is a context
            with device:
                return asarray(array)

    return lambda array: _fitting(converted, array)


def handed_over(array: Any, convert: Callable[[_Array], Any]) -> Any:
    """Return an array on a device as one of the library that ``convert`` turns numpy's into.

    In place where the library takes it; else by way of the host, as a number type that it holds.
    """
    sample = convert(np.zeros(1, np.dtype(str(array.dtype))))
    module = sys.modules.get(_library(sample))
    if hasattr(sample, "__array_namespace__"):
        module = sample.__array_namespace__()
    same = str(getattr(sample, "dtype", "")).rpartition(".")[2] == str(array.dtype)
    take = getattr(module, "from_dlpack", None)
    if take is None or not same or place_of(sample) != place_of(array):
        return convert(on_host(array))
    return take(array)


def _fitting(convert: Callable[[_Array], Any], array: _Array) -> Any:
    """Return a library's array of numbers that it holds: rounded where it has no numbers of 64 bits."""
    if array.dtype == np.float64:
        try:
            return convert(array)
        except (TypeError, ValueError):  # the device has no float64, as MPS of torch
            return convert(array.astype(np.float32))
    found = convert(array)
    size = getattr(getattr(found, "dtype", None), "itemsize", 8)
    if array.dtype == np.int64 and size < 8 and _exceeds_int32(array):
        return _fitting(convert, array.astype(np.float64))  # JAX would keep the lower 32 bits
    return found


def _exceeds_int32(array: _Array) -> bool:
    return bool(array.size and not -(2**31) <= array.min() <= array.max() < 2**31)


def _library(tensor: Any) -> str:
    """Return the package of a tensor's class, or torch if it is derived from one of torch's."""
    packages = [kind.__module__.partition(".")[0] for kind in type(tensor).__mro__]
    return "torch" if "torch" in packages else packages[0]
