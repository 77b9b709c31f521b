"""Numbers in requests: infinities, which JSON lacks, and integers that float64 cannot represent.

No number is rounded silently: an integer beyond 2**53 stays an integer, or is refused where float64
is needed and cannot represent it.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapSerializer,
    WrapValidator,
)


def _infinite(value: object) -> float | None:
    return {"Infinity": math.inf, "-Infinity": -math.inf}.get(value) if isinstance(value, str) else None


def _check_entry(value: object, where: str) -> float | int | str:
    """Return an entry of an inline array; infinities as text, since JSON has none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        if _infinite(value) is None:
            raise ValueError(f'{where} must be a number, "Infinity" or "-Infinity"')
        return str(value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{where} does not fit 64 bits")
        return value
    if math.isnan(value):
        raise ValueError(f"{where} is NaN")
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _check_inline(values: list[Any]) -> list[Any]:
    if not values or not isinstance(values[0], list):
        found = [_check_entry(value, f"entry {k}") for k, value in enumerate(values)]
        _check_exact({f"entry {k}": value for k, value in enumerate(found)})
        return found
    width = len(values[0])
    rows: list[list[Any]] = []
    for i, row in enumerate(values):
        if not isinstance(row, list) or len(row) != width:
            raise ValueError(f"row {i} must be a list of {width} numbers, like row 0")
        rows.append([_check_entry(value, f"entry [{i}, {j}]") for j, value in enumerate(row)])
    _check_exact({f"entry [{i}, {j}]": value for i, row in enumerate(rows) for j, value in enumerate(row)})
    return rows


def _check_exact(entries: dict[str, Any]) -> None:
    """Refuse an integer that would be rounded because other entries make the array float64."""
    if all(isinstance(value, int) for value in entries.values()):
        return
    for where, value in entries.items():
        if isinstance(value, int) and float(value) != value:
            raise ValueError(
                f"{where} is {value}, which float64 does not hold; fractions and infinities in the"
                " same array make it float64"
            )


_NUMBER_SCHEMA = {"anyOf": [{"type": "number"}, {"enum": ["Infinity", "-Infinity"]}]}
Inline: TypeAlias = Annotated[
    list[Any],
    AfterValidator(_check_inline),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"anyOf": [*_NUMBER_SCHEMA["anyOf"], {"type": "array", "items": _NUMBER_SCHEMA}]},
            "title": "Inline array",
            "description": "Numbers, or lists of equally many numbers; infinities as text",
        }
    ),
]


def _keep_integer(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Return a float, or an integer that float64 cannot represent."""
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            rounded = float(value)
        except OverflowError:
            raise ValueError("is beyond float64") from None
        return rounded if rounded == value else value
    return handler(value)


def _check_held(value: float) -> float:
    if isinstance(value, int):
        raise ValueError(f"is {value}, which float64 does not hold exactly")
    return value


#: A finite number: a float, or an integer where float64 would round it.
Number: TypeAlias = Annotated[
    Annotated[float, Field(allow_inf_nan=False)],
    WrapValidator(_keep_integer),
    WrapSerializer(lambda value, handler: value if isinstance(value, int) else handler(value)),
    WithJsonSchema({"type": "number"}),
]
#: A finite number that float64 represents exactly.
Finite: TypeAlias = Annotated[Number, AfterValidator(_check_held)]
Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
