"""What was measured, one JSON object a line, so that a run can be stopped and continued."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any

FIELDS = ("experiment", "cls", "n", "seed", "solver", "threads")
#: Values of ``FIELDS``: they identify a record.
Key = tuple[str, str, int, int, str, int]
#: What was measured: class -> n -> value.
Curves = dict[str, dict[int, float]]
_HEADER = "header"


class StaleError(Exception):
    """The log holds measurements of other code, of another machine or of other sizes."""


class Log:
    """A JSON lines file; ``header`` says what its measurements hold for (machine, versions, code).

    Raises StaleError when the file was begun under another header.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self.header = json.loads(json.dumps(header))
        self.records: list[dict[str, Any]] = []
        # The same by experiment and size: reports look up thousands.
        self._by: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        whole, _, rest = text.rpartition("\n")
        if rest:  # the writer was killed in the middle of a line
            path.write_text(whole + "\n" if whole else "")
        if not whole:
            self._append({"experiment": _HEADER, **self.header})
            return
        found, *records = (json.loads(line) for line in whole.splitlines())
        if found.pop("experiment", None) != _HEADER:
            raise StaleError(f"{path}: not a log of this benchmark")
        keys = sorted(found | self.header)
        if changed := [key for key in keys if found.get(key) != self.header.get(key)]:
            raise StaleError(
                f"{path}: measured under another {', '.join(changed)};"
                " --fresh starts over, --report shows it as it is"
            )
        for record in records:
            self._keep(record)

    @classmethod
    def read(cls, path: Path) -> Log:
        """The log as it is, whatever it was measured under."""
        with path.open() as file:
            header = json.loads(file.readline())
        header.pop("experiment", None)
        return cls(path, header)

    @property
    def judged(self) -> bool:
        """Whether the sizes are those that the bars are about."""
        return bool(self.header.get("scale") == "full")

    def add(self, key: Key, **measured: Any) -> None:
        """Append a record; it is on disk when this returns."""
        record = dict(zip(FIELDS, key, strict=True), **measured)
        self._append(record)
        self._keep(json.loads(json.dumps(record)))

    def _keep(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        for n in (None, record.get("n")):
            self._by[record.get("experiment"), n].append(record)

    def _append(self, record: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Those that have no record yet."""
        return [key for key in keys if self.get(key) is None]

    def get(self, key: Key) -> dict[str, Any] | None:
        """The record with this key, None without one."""
        return next(self.of(**dict(zip(FIELDS, key, strict=True))), None)

    def of(self, **wanted: Any) -> Iterator[dict[str, Any]]:
        """Records with these values, in the order measured."""
        few = self._by[wanted["experiment"], wanted.get("n")] if "experiment" in wanted else None
        for record in self.records if few is None else few:
            if all(record.get(key) == value for key, value in wanted.items()):
                yield record

    def values(self, name: str, **wanted: Any) -> list[Any]:
        """That field of the records that have it."""
        return [record[name] for record in self.of(**wanted) if name in record]

    def curves(self, name: str, mean: bool = False, **wanted: Any) -> Curves:
        """class -> n -> median of that field over the seeds, or its mean."""
        found: Curves = {}
        for cls in self.distinct("cls", **wanted):
            for n in sorted(self.distinct("n", **wanted, cls=cls)):
                if values := self.values(name, **wanted, cls=cls, n=n):
                    found.setdefault(cls, {})[n] = (fmean if mean else median)(values)
        return found

    def distinct(self, name: str, **wanted: Any) -> list[Any]:
        """Its values in the order first seen."""
        return list(dict.fromkeys(self.values(name, **wanted)))
