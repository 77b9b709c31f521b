"""What was measured, one JSON object a line, so that a run can be stopped and continued."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIELDS = ("experiment", "cls", "n", "seed", "solver", "threads")
HEADER = "header"


class StaleError(Exception):
    """The log holds measurements of other code, of another machine or of other sizes."""


class Log:
    """A JSON lines file; a record is identified by its values of ``FIELDS``.

    ``header`` says what the measurements hold for (machine, versions, code). Raises
    StaleError when the file was begun under another one.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self.header = json.loads(json.dumps(header))
        self.records: list[dict[str, Any]] = []
        if path.exists():
            self._load()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"experiment": HEADER, **self.header})

    def _load(self) -> None:
        text = self.path.read_text()
        whole, _, rest = text.rpartition("\n")
        if rest:  # the writer was killed in the middle of a line
            self.path.write_text(whole + "\n" if whole else "")
        lines = [json.loads(line) for line in whole.splitlines()]
        if not lines:
            self._append({"experiment": HEADER, **self.header})
            return
        found = lines[0]
        if found.pop("experiment", None) != HEADER:
            raise StaleError(f"{self.path}: not a log of this benchmark")
        changed = sorted(key for key in found | self.header if found.get(key) != self.header.get(key))
        if changed:
            raise StaleError(
                f"{self.path}: measured under another {', '.join(changed)};"
                " --fresh starts over, --report shows it as it is"
            )
        self.records = lines[1:]

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

    def add(
        self, experiment: str, cls: str, n: int, seed: int, solver: str, threads: int, **measured: Any
    ) -> None:
        """Append a record; it is on disk when this returns."""
        record = dict(zip(FIELDS, (experiment, cls, n, seed, solver, threads), strict=True), **measured)
        self._append(record)
        self.records.append(json.loads(json.dumps(record)))

    def _append(self, record: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def has(self, *key: str | int) -> bool:
        """Whether the run with these values of ``FIELDS`` is finished."""
        return self.get(*key) is not None

    def get(self, *key: str | int) -> dict[str, Any] | None:
        """The record with these values of ``FIELDS``, None without one."""
        wanted = dict(zip(FIELDS, key, strict=True))
        return next(self.of(**wanted), None)

    def of(self, **wanted: Any) -> Iterator[dict[str, Any]]:
        """Records with these values, in the order measured."""
        for record in self.records:
            if all(record.get(key) == value for key, value in wanted.items()):
                yield record

    def values(self, name: str, **wanted: Any) -> list[Any]:
        """That field of the records that have it."""
        return [record[name] for record in self.of(**wanted) if name in record]

    def distinct(self, name: str, **wanted: Any) -> list[Any]:
        """Its values in the order first seen."""
        return list(dict.fromkeys(self.values(name, **wanted)))
