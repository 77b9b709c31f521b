"""Files of cost specs: JSON, and the ``.npy`` arrays that it names. Nothing is evaluated."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from bigsap.errors import InputError, StoreError
from bigsap.types import Array


def read_json(file: Path) -> Any:
    """Return the content of a JSON file. Raises InputError naming file and place; also for repeated keys."""
    try:
        return json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_object, parse_float=_float)
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{file}: not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 text") from error
    except RecursionError as error:
        raise InputError(f"{file}: nested too deeply") from error
    except _RepeatedKeyError as error:
        raise InputError(f"{file}: key {error.args[0]!r} appears twice in one object") from error
    except ValueError as error:  # more digits than Python converts, or a number beyond float64
        raise InputError(f"{file}: not JSON that can be read: {str(error).partition(';')[0]}") from error


def load_npy(path: str | os.PathLike[str], pointer: str | None = None) -> Array:
    """Return the ``.npy`` file at ``path``, mapped; errors begin with ``pointer``, if there is one."""
    where = os.fspath(path) if pointer is None else f"{pointer}: {os.fspath(path)}"
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise InputError(f"{where}: no such file") from error
    except (OSError, ValueError, EOFError) as error:
        raise StoreError(f"{where}: not a readable .npy file: {error}") from error
    if not isinstance(array, np.ndarray):  # np.load also opens .npz archives
        raise StoreError(f"{where}: an archive; a single .npy array is needed")
    return array


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:100]} is beyond float64 (write Infinity if that is meant)")
    return value


class _RepeatedKeyError(Exception):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(key for key in keys if keys.count(key) > 1))
    return result
