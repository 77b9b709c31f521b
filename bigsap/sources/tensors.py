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

_Array: TypeAlias = npt.NDArray[Any]

#: kDLCPU and kDLCUDA of DLPack.
CPU, CUDA = 1, 2
# Type numbers of dtypes of other packages start here: bfloat16, float8, int4, ...
_FIRST_FOREIGN = 256


def is_tensor(given: Any) -> bool:
    """Return whether an object is an array of another library than numpy that speaks DLPack."""
    kind = type(given)
    if isinstance(given, np.ndarray) or not hasattr(kind, "__dlpack__"):
        return False
    return hasattr(kind, "__dlpack_device__") and hasattr(given, "shape")


def place_of(tensor: Any) -> tuple[int, int]:
    """Return the kind of device, and its number, where a tensor lies."""
    kind, number = tensor.__dlpack_device__()
    return int(kind), int(number)


def on_host(tensor: Any) -> _Array:
    """Return a tensor as a numpy array.

    A view where the tensor lies in host memory. A copy of a tensor on a device, once all work on it is
    done, and of number types that numpy lacks, which become wider ones. Gradients are ignored.
    """
    if getattr(tensor, "requires_grad", False):
        tensor = tensor.detach()
    if place_of(tensor)[0] != CPU:
        tensor = _copied(tensor)
    try:
        found: _Array = np.asarray(np.from_dlpack(tensor))
    except (BufferError, RuntimeError, TypeError, ValueError):  # bfloat16, read-only memory
        # torch.Tensor.float: bfloat16 as float32.
        wide = tensor.float() if _library(tensor) == "torch" and hasattr(tensor, "float") else tensor
        found = np.asarray(wide)
    return widened(found)


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
        return lambda array: from_numpy(np.ascontiguousarray(array)).to(device)
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

    return converted


def _library(tensor: Any) -> str:
    return type(tensor).__module__.partition(".")[0]
