"""Models of the cost spec.

The cost spec is a tagged union: ``type`` selects the member, and each member maps onto one
source of the library (``build``). Nothing here is ever evaluated as Python or unpickled.
Unknown keys and values of another type are refused, never converted. No number is rounded silently:
an integer beyond 2**53 stays an integer, or is refused where float64 is needed and cannot represent
it. JSON lacks infinities, which are given as text.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapSerializer,
    WrapValidator,
    field_validator,
    model_validator,
)

ID_PATTERN = r"^[a-z]+_[A-Za-z0-9]{1,40}$"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
#: Most levels of lists and objects in the parameters of a plugin.
_PARAMS_DEPTH = 64
DTYPES = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1")


def _check_entry(value: object, where: str) -> float | int | str:
    """Return an entry of an inline array; infinities as text, since JSON has none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        if value not in ("Infinity", "-Infinity"):
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
    """Return the entries of a list, or of equally long lists.

    Refuses an integer that would be rounded because other entries make the array float64.
    """
    matrix = bool(values) and isinstance(values[0], list)
    found: dict[str, Any] = {}
    width = len(values[0]) if matrix else 0
    for i, row in enumerate(values if matrix else [values]):
        if matrix and (not isinstance(row, list) or len(row) != width):
            raise ValueError(f"row {i} must be a list of {width} numbers, like row 0")
        for j, value in enumerate(row):
            where = f"entry [{i}, {j}]" if matrix else f"entry {j}"
            found[where] = _check_entry(value, where)
    if not all(isinstance(value, int) for value in found.values()):
        for where, value in found.items():
            if isinstance(value, int) and float(value) != value:
                why = "fractions and infinities in the same array make it float64"
                raise ValueError(f"{where} is {value}, which float64 does not hold; {why}")
    entries = list(found.values())
    return [entries[k * width : (k + 1) * width] for k in range(len(values))] if matrix else entries


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


def _keep_infinity(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Return the text of an infinite number, which JSON lacks, as it is."""
    return value if value in ("Infinity", "-Infinity") else handler(value)


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
#: Such a number, or an infinite one as text.
NumberOrInfinity: TypeAlias = Annotated[
    Number,
    WrapValidator(_keep_infinity),
    WrapSerializer(lambda value, handler: value if isinstance(value, str) else handler(value)),
    WithJsonSchema(_NUMBER_SCHEMA),
]
#: A finite number that float64 represents exactly.
Finite: TypeAlias = Annotated[Number, AfterValidator(_check_held)]
Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Model(BaseModel):
    """Base class of all models: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def example(document: dict[str, Any]) -> ConfigDict:
    """Return a model's configuration with an example for its JSON Schema."""
    return ConfigDict(json_schema_extra={"examples": [document]})


class Uploaded(Model):
    """An uploaded, sealed array."""

    model_config = example({"array": "arr_01"})

    array: str = Field(pattern=ID_PATTERN, description="id of the array")


class Stored(Model):
    """A ``.npy`` file in one of the operator's named stores."""

    model_config = example({"store": "lab", "path": "cells/x.npy"})

    store: str = Field(pattern=NAME_PATTERN, description="name of the store")
    path: str = Field(min_length=1, max_length=1024, description="relative path within the store")


def _array_kind(value: Any) -> str:
    if isinstance(value, list):
        return "inline"
    if isinstance(value, Stored) or (isinstance(value, dict) and "store" in value):
        return "stored"
    return "uploaded"


#: An uploaded array, a stored one, or up to 10,000 inline numbers.
Array: TypeAlias = Annotated[
    Annotated[Inline, Tag("inline")]
    | Annotated[Uploaded, Tag("uploaded")]
    | Annotated[Stored, Tag("stored")],
    Discriminator(_array_kind),
]


def _scalar_or_array(value: Any) -> str:
    scalar = isinstance(value, (int, float, str)) or value is None
    return "number" if scalar else _array_kind(value)


_Number = TypeVar("_Number")
_OrArray: TypeAlias = Annotated[
    Annotated[_Number, Tag("number")]
    | Annotated[Inline, Tag("inline")]
    | Annotated[Uploaded, Tag("uploaded")]
    | Annotated[Stored, Tag("stored")],
    Discriminator(_scalar_or_array),
]
#: A number or an array; of costs, with integers accepted as numbers; of counts, a whole one >= 0.
NumberOrArray: TypeAlias = _OrArray[Finite]
CostOrArray: TypeAlias = _OrArray[NumberOrInfinity]
CountOrArray: TypeAlias = _OrArray[Annotated[int, Field(ge=0, lt=2**31)]]
Shape: TypeAlias = Annotated[
    list[Annotated[int, Field(ge=0, lt=2**53)]],
    Field(min_length=2, max_length=2, description="[number of rows, number of columns]"),
]
Metric: TypeAlias = Literal[
    "sqeuclidean", "euclidean", "cityblock", "chebyshev", "minkowski", "cosine", "haversine"
]


class Points(Model):
    """Distances between two sets of points, computed when needed."""

    model_config = example(
        {"type": "points", "metric": "euclidean", "x": {"array": "arr_01"}, "y": {"array": "arr_02"}}
    )

    type: Literal["points"]
    x: Array = Field(description="(n, d) coordinates, one row's point each")
    y: Array = Field(description="(m, d) coordinates, one column's point each")
    metric: Metric = Field("sqeuclidean", description="haversine takes radians")
    p: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = Field(
        None, description="exponent, for minkowski only; 2 when left out"
    )
    w: Array | None = Field(None, description="(d,) factors >= 0 of the dimensions")
    radius: Positive | None = Field(None, description="unit of haversine; 1 when left out")
    max_distance: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None,
        description="pairs farther apart are forbidden; a distance of the metric, for sqeuclidean the"
        " euclidean one, not its square",
    )


class LowRank(Model):
    """``a @ b.T`` plus row and column terms."""

    model_config = example({"type": "lowrank", "a": [[1, 0], [0, 2]], "b": [[1, 1], [3, 0.5]]})

    type: Literal["lowrank"]
    a: Array = Field(description="(n, r) factors")
    b: Array = Field(description="(m, r) factors")
    row_terms: Array | None = Field(None, description="(n,) added to each row")
    column_terms: Array | None = Field(None, description="(m,) added to each column")


class Table(Model):
    """Costs looked up by the classes of row and column."""

    model_config = example(
        {"type": "table", "values": [[1, 5], [4, 2]], "row_class": [0, 1, 1], "column_class": [1, 0, 1]}
    )

    type: Literal["table"]
    values: Array = Field(description="(K, L) costs")
    row_class: Array = Field(description="(n,) integers from 0 to K - 1")
    column_class: Array = Field(description="(m,) integers from 0 to L - 1")


class Sparse(Model):
    """Costs of which only the listed pairs are allowed; each pair is listed once."""

    model_config = example(
        {"type": "sparse", "shape": [2, 2], "rows": [0, 0, 1], "columns": [0, 1, 0], "costs": [4, 1, 2]}
    )

    type: Literal["sparse"]
    columns: Array = Field(description="(k,) integers: the column of each listed pair")
    costs: Array = Field(description="(k,) costs; zero is a cost, infinity forbids a pair")
    rows: Array | None = Field(None, description="(k,) integers: the row of each listed pair")
    start: Array | None = Field(
        None, description="(n + 1,) integers, in place of rows: where each row's pairs begin, and the end"
    )
    shape: Shape | None = Field(None, description="needed unless the request has it")

    @model_validator(mode="after")
    def _one_of(self) -> Sparse:
        if (self.rows is None) == (self.start is None):
            raise ValueError("give either rows or start")
        return self


class Matrix(Model):
    """A whole cost matrix. ``"array": "arr_01"`` is short for the ``values`` of that upload."""

    model_config = example({"type": "array", "values": [[4, 1, 3], [2, 0, 5], [3, 2, 2]]})

    type: Literal["array"]
    values: Array = Field(description="(n, m) costs; infinity forbids a pair")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        if isinstance(data, dict) and "array" in data and "values" not in data:
            given = data["array"]
            values = {"array": given} if isinstance(given, str) else given
            return {k: v for k, v in data.items() if k != "array"} | {"values": values}
        return data


#: Options of a request, and their names in ``bigsap.solve``, which are taken too.
ALIASES = {"time_limit_s": "time_limit", "checkpoint_s": "checkpoint_every"}


def as_sent(sent: Any, name: Any) -> Any:
    """Return the key of a field ``name`` in the object that was sent: a short form, or another name."""
    other = ALIASES.get(name)
    if other is not None and isinstance(sent, dict) and name not in sent and other in sent:
        return other
    short = name == "values" and isinstance(sent, dict) and sent.get("type") == "array"
    return "array" if short and "values" not in sent and "array" in sent else name


class Zarr(Model):
    """A zarr array: in a named store, or at an address that the operator allows."""

    model_config = example({"type": "zarr", "store": "lab", "path": "costs.zarr"})

    type: Literal["zarr"]
    store: str | None = Field(None, pattern=NAME_PATTERN, description="name of the store")
    path: str | None = Field(None, min_length=1, max_length=1024, description="within the store")
    uri: str | None = Field(None, min_length=1, max_length=2048, description="allowed address")

    @model_validator(mode="after")
    def _one_place(self) -> Zarr:
        if (self.uri is None) == (self.store is None) or (self.path is None) == (self.uri is None):
            raise ValueError("give either store and path, or uri")
        return self


class Npy(Model):
    """A ``.npy`` file of a whole matrix, at an address that the operator allows."""

    model_config = example({"type": "npy", "uri": "s3://bucket/costs.npy"})

    type: Literal["npy"]
    uri: str = Field(min_length=1, max_length=2048, description="allowed address")


class Expression(Model):
    """A formula in a small safe language; see ``bigsap.expression``."""

    model_config = example(
        {
            "type": "expression",
            "code": "abs(x[i,0]-y[j,0]) + 0.1*(x[i,1]-y[j,1])**2",
            "arrays": {"x": [[0.1, 0.2], [0.5, 0.6]], "y": [[0.3, 0.4], [0.7, 0.8]]},
        }
    )

    type: Literal["expression"]
    code: str = Field(min_length=1, max_length=4096, description="the cost of the pair i, j")
    arrays: dict[Annotated[str, Field(max_length=64)], NumberOrArray] = Field(
        default_factory=dict, max_length=8, description="named arrays and numbers"
    )
    shape: Shape | None = Field(None, description="needed unless the request has it")


class HttpRows(Model):
    """Rows from a remote provider, whose host the operator must allow."""

    model_config = example(
        {"type": "http_rows", "url": "http://rows.example:8000/", "shape": [1000, 2000], "dtype": "f4"}
    )

    type: Literal["http_rows"]
    url: str = Field(min_length=1, max_length=2048, pattern=r"^https?://", description="provider")
    dtype: str = Field(pattern=r"^[<|]?(f[248]|[iu][1248])$|^(float(16|32|64)|u?int(8|16|32|64))$")
    shape: Shape | None = Field(None, description="needed unless the request has it")
    credentials: str | None = Field(
        None, pattern=NAME_PATTERN, description="name of headers that the operator has set"
    )
    timeout: float = Field(30.0, gt=0, le=600, allow_inf_nan=False, description="seconds")
    retries: int = Field(4, ge=0, le=20)
    in_flight: int = Field(4, ge=1, le=16, description="requests at a time")
    block_rows: int | None = Field(None, ge=1, le=2**31, description="most rows of a request")


def _check_depth(value: Any, most: int = _PARAMS_DEPTH) -> None:
    """Raise ValueError for lists and objects in each other that are too deep to be written as JSON."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if parts and not most:
        raise ValueError(f"is nested more than {_PARAMS_DEPTH} levels deep")
    for part in parts:
        _check_depth(part, most - 1)


class Plugin(Model):
    """Costs of a plugin that the operator has installed and enabled."""

    model_config = example({"type": "plugin", "name": "road-network", "params": {"city": "Ulm"}})

    type: Literal["plugin"]
    name: str = Field(pattern=NAME_PATTERN)
    params: dict[str, Any] = Field(default_factory=dict, description="as the plugin's schema says")

    @field_validator("params")
    @classmethod
    def _plain_json(cls, params: dict[str, Any]) -> dict[str, Any]:
        _check_depth(params)
        # Infinities and lone surrogates can be parsed but not be written as JSON.
        json.dumps(params, allow_nan=False, ensure_ascii=False).encode("utf-8")
        return params


class Sum(Model):
    """The sum of costs of one shape; forbidden where one of them is."""

    model_config = example(
        {
            "type": "sum",
            "terms": [
                {"type": "points", "x": [0, 1], "y": [1, 2]},
                {"type": "array", "values": [[0, 3], [1, 0]]},
            ],
        }
    )

    type: Literal["sum"]
    terms: list[Cost] = Field(min_length=1, max_length=16)


class Scale(Model):
    """Costs times a factor; forbidden pairs stay forbidden."""

    model_config = example(
        {"type": "scale", "factor": 0.5, "cost": {"type": "array", "values": [[4, 1], [2, 0]]}}
    )

    type: Literal["scale"]
    cost: Cost
    factor: Finite


class Mask(Model):
    """Costs with some pairs forbidden: where ``forbidden`` is not 0, or ``allowed`` is 0."""

    model_config = example(
        {"type": "mask", "cost": {"type": "array", "values": [[4, 1], [2, 0]]}, "forbidden": [[0, 0], [0, 1]]}
    )

    type: Literal["mask"]
    cost: Cost
    forbidden: Array | None = Field(None, description="(n, m); not 0: the pair is forbidden")
    allowed: Array | None = Field(None, description="(n, m); 0: the pair is forbidden")

    @model_validator(mode="after")
    def _one_of(self) -> Mask:
        if (self.forbidden is None) == (self.allowed is None):
            raise ValueError("give either forbidden or allowed")
        return self


class ForbidAbove(Model):
    """Costs with the pairs forbidden that cost more than a threshold."""

    model_config = example(
        {"type": "forbid_above", "threshold": 3.5, "cost": {"type": "array", "values": [[4, 1], [2, 0]]}}
    )

    type: Literal["forbid_above"]
    cost: Cost
    threshold: Number = Field(description="compared exactly, also with integers")


Cost: TypeAlias = Annotated[
    Points
    | LowRank
    | Table
    | Sparse
    | Matrix
    | Zarr
    | Npy
    | Expression
    | HttpRows
    | Plugin
    | Sum
    | Scale
    | Mask
    | ForbidAbove,
    Field(discriminator="type"),
]
#: Every member by its type.
MEMBERS: dict[str, type[Model]] = {
    get_args(member.model_fields["type"].annotation)[0]: member for member in get_args(get_args(Cost)[0])
}


for _model in (Sum, Scale, Mask, ForbidAbove):
    _model.model_rebuild()
