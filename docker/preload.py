"""Loaded by a Dask worker (``--preload``): a worker that is stopped leaves checkpoints.

Running attempts are told to stop; they write a checkpoint and end as *interrupted*, and
the service continues them on another worker.
"""

import asyncio
import os
import time
from pathlib import Path

from bigsap_server.files import read_json
from bigsap_server.jobs import worker as attempts
from bigsap_server.jobs.control import Folder


async def dask_teardown(worker: object) -> None:
    """Tell what runs here to stop, and wait for it."""
    until = time.monotonic() + float(os.environ.get("BIGSAP_DRAIN_S", "30"))
    for name in list(attempts._present):
        folder = Folder(Path(name))
        control = read_json(folder.path / "control.json")
        if control is not None and control["command"] == "run":
            folder.command(control["attempt"], "stop")
    while attempts._present and time.monotonic() < until:
        await asyncio.sleep(0.1)
