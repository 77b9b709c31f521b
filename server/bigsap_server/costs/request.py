"""Request models: options, warm start, and the whole request. A request is validated here once."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

import bigsap
from bigsap_server.costs.specs import (
    ALIASES,
    ID_PATTERN,
    Array,
    Cost,
    CostOrArray,
    CountOrArray,
    Model,
    Positive,
    Shape,
    example,
)

_SIZE_PATTERN = r"^[0-9]{1,15}(\.[0-9]{1,6})? ?([kKmMgGtT]i?)?[bB]?$"


def _check_size(value: object) -> object:
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            if 1 <= bigsap.RowCache(value).budget(0) < 2**63:
                return value
        except (bigsap.OptionError, OverflowError):
            pass
    raise ValueError('must be a number of bytes, at least 1, or a size such as "4GiB" or "500MB"')


#: Bytes: a number, or text such as "8GiB".
Size: TypeAlias = Annotated[
    int | str,
    BeforeValidator(_check_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "exclusiveMaximum": 2**63},
                {"type": "string", "pattern": _SIZE_PATTERN},
            ]
        }
    ),
]


def _check_certify(value: object) -> object:
    return "bounds" if value is True else value  # as bigsap.solve has it


def _or(name: str) -> AliasChoices:
    """Return the names of an option: its own, which the documents have, and that in ``bigsap.solve``."""
    return AliasChoices(name, ALIASES[name])


class Options(Model):
    """Options of the solve. All may be left out."""

    model_config = example({"maximize": False, "gap": 0.0, "time_limit_s": 3600, "cache": "8GiB"})

    maximize: bool = Field(False, description="largest total instead of smallest")
    objective: Literal["sum", "bottleneck"] = Field(
        "sum", description="bottleneck: the largest cost first, then the sum"
    )
    method: Literal["auto", "ssp", "compressed", "hungarian", "auction"] = Field(
        "auto", description="auto chooses"
    )
    variant: Literal["auto", "classical", "tree", "plain", "scaled"] = Field(
        "auto", description="of hungarian: classical, tree; of auction: plain, scaled"
    )
    epsilon: bool = Field(True, description="false: one phase, without epsilon")
    gap: float = Field(0.0, ge=0, allow_inf_nan=False, description="stop this close to the optimum")
    time_limit_s: Positive | None = Field(
        None, validation_alias=_or("time_limit_s"), description="seconds; then the best so far"
    )
    dtype: Literal["float64", "float32", "int64", "int32", "uint16", "uint8"] | None = Field(
        None, description="read the costs as this type; a cost that it does not hold is an error"
    )
    cache: Size | None = Field(None, description='memory for rows, such as "8GiB"')
    memory_limit: Size | None = Field(None, description="memory beyond the costs in memory")
    threads: int | None = Field(None, ge=1, le=1024, description="default: a fair share")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    checkpoint_s: float | None = Field(
        None,
        validation_alias=_or("checkpoint_s"),
        gt=0,
        le=86400,
        allow_inf_nan=False,
        description="seconds between checkpoints",
    )
    start: Literal["auto", "levels", "estimate", "none"] = Field(
        "auto", description="first prices: of solved samples, estimated, or zero"
    )
    certify: Annotated[Literal["bounds", "pairs"], BeforeValidator(_check_certify)] = Field(
        "bounds", description="pairs: the proof looks at every pair, even where bounds would do"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="of the order of rows")
    unassigned_cost: CostOrArray | None = Field(
        None, description="price, one or (n,), at which a row may stay unassigned"
    )
    capacity: CountOrArray | None = Field(
        None, description="rows that a column may take, one number or (m,); not with spread"
    )
    demand: CountOrArray | None = Field(
        None, description="columns that a row takes, one number or (n,); not with spread"
    )


class WarmStart(Model):
    """Where to start: the result of another job, or column prices (and an assignment)."""

    model_config = example({"job": "job_01"})

    job: str | None = Field(None, pattern=ID_PATTERN, description="a job of the same shape")
    v: Array | None = Field(None, description="(m,) column prices")
    col4row: Array | None = Field(None, description="(n,) columns of the rows, -1: none")

    @model_validator(mode="after")
    def _one_of(self) -> WarmStart:
        if (self.job is None) == (self.v is None):
            raise ValueError("give either job or v")
        if self.col4row is not None and self.v is None:
            raise ValueError("col4row needs v")
        return self


class Assignment(Model):
    """An assignment to prove in place of a solve: what it costs, a bound of the optimum, and the gap.

    With prices ``v`` that is one pass over the costs; else the problem is solved for prices first.
    """

    model_config = example({"col4row": {"array": "arr_01"}})

    col4row: Array = Field(description="(n,) columns of the rows, -1: none")
    v: Array | None = Field(
        None, description="(m,) column prices of the minimising problem, or as a result has them"
    )
    v_low: Array | None = Field(None, description="(m,) low parts of the prices")

    @model_validator(mode="after")
    def _low_of(self) -> Assignment:
        if self.v_low is not None and self.v is None:
            raise ValueError("v_low needs v")
        return self


class JobRequest(Model):
    """One assignment problem to solve, or one assignment of it to prove."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"cost": {"type": "array", "values": [[4, 1, 3], [2, 0, 5], [3, 2, 2]]}},
                {
                    "shape": [2, 2],
                    "cost": {
                        "type": "expression",
                        "code": "abs(x[i,0]-y[j,0]) + 0.1*(x[i,1]-y[j,1])**2",
                        "arrays": {"x": [[0.1, 0.2], [0.5, 0.6]], "y": [[0.3, 0.4], [0.7, 0.8]]},
                    },
                    "options": {"time_limit_s": 60},
                    "label": "small",
                },
            ]
        }
    )

    shape: Shape | None = Field(
        None, description="needed for expression and http_rows, else checked against the costs"
    )
    cost: Cost
    options: Options = Field(default_factory=Options)
    warm_start: WarmStart | None = None
    assignment: Assignment | None = Field(
        None, description="prove this one: its cost, and how far from the optimum it can be"
    )
    k_best: int | None = Field(
        None, ge=1, le=10_000, description="rank so many assignments, the best first, in exact order"
    )
    spread: Annotated[int, Field(ge=2, le=1024)] | bool = Field(
        False, description="over several workers of the cluster; a number: at most so many"
    )
    webhook: str | None = Field(
        None, max_length=2048, description="allowed address that is notified when the job has ended"
    )
    results: str | None = Field(
        None, max_length=2048, description="allowed address below which the result is written, too"
    )
    priority: int = Field(0, ge=-100, le=100, description="among the jobs of the same key: higher first")
    label: str | None = Field(None, max_length=200, description="for people, and for the list")


class CheckRequest(Model):
    """A cost spec to compile and sample."""

    model_config = example({"cost": {"type": "array", "values": [[4, 1], [2, 0]]}})

    shape: Shape | None = None
    cost: Cost
    maximize: bool = False
