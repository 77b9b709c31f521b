"""Files as answers, with ranges."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from bigsap_server.api.negotiation import narrow_range
from bigsap_server.problems import HttpProblem


class Download(FileResponse):
    """A file, which is sent whole although it is deleted meanwhile.

    It is opened before the answer begins: afterwards a missing file could only break the connection.
    Raises HttpProblem ``not-found``. passing: it is removed once it is sent, or cannot be.
    """

    def __init__(
        self, file: Path, kind: str, name: str, headers: Mapping[str, str], *, passing: bool = False
    ) -> None:
        self._passing = passing
        try:
            self._opened = file.open("rb")
        except FileNotFoundError:
            raise HttpProblem("not-found", "the array is not there (any more)") from None
        found = os.fstat(self._opened.fileno())
        super().__init__(file, media_type=kind, filename=name, headers=headers, stat_result=found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, or what Range asks for. Raises HttpProblem ``range-not-satisfiable``."""
        try:
            narrow_range(scope, os.fstat(self._opened.fileno()).st_size)
            await super().__call__(scope, receive, send)
        finally:
            self._opened.close()
            if self._passing:
                drop(Path(self.path))

    @asynccontextmanager
    async def _open_file(self) -> AsyncIterator[Any]:
        yield anyio.wrap_file(self._opened)


def drop(file: Path) -> None:
    """Remove a temporary file."""
    with suppress(OSError):  # on Windows, while it is looked at: the next start removes it
        file.unlink()
