"""The request of ``bigsap submit``: a file and options as a job request, and the arrays it names."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsap.cli.certify_command import read_assignment
from bigsap.cli.common import draw, note, on_terminal
from bigsap.cli.option_flags import given_request_options, warm_start_of
from bigsap.client.http import UploadError
from bigsap.display.text import shown
from bigsap.errors import InputError
from bigsap.option_table import as_requested

if TYPE_CHECKING:
    from bigsap.client.job_request import RowBlocks
    from bigsap.client.jobs import Client
    from bigsap.types import Array


def job_request(args: argparse.Namespace) -> dict[str, Any]:
    """Return the request of the arguments, with files in it unread. Raises InputError."""
    from bigsap.client.job_request import assignment_of

    request = read_request(args.spec)
    given = given_request_options(args)
    if given:
        request["options"] = {**as_requested(request.get("options") or {}), **given}
    if args.warm_start is not None:
        request["warm_start"] = _start(args.warm_start)
    if args.certify is not None:
        prices = None if args.prices is None else read_assignment(args.prices)
        request["assignment"] = assignment_of(request, read_assignment(args.certify), prices)
    elif args.prices is not None:
        raise InputError("--prices is not valid without --certify")
    if args.k_best is not None:
        request["k_best"] = args.k_best
    if args.spread is not None:
        request["spread"] = args.spread
    return request


def read_request(name: str) -> dict[str, Any]:
    """Return a file, store or address as a job request, with ``.npy`` files and stores in it unread.

    Raises InputError if the file does not exist, or if it is neither a request nor costs.
    """
    from bigsap.client.job_request import spec_of
    from bigsap.sources.spec_files import read_json

    if "://" in name:
        return {"cost": spec_of(name)}
    spec = Path(name)
    if not spec.exists():
        raise InputError(f"{spec}: no such file")
    if spec.is_dir():
        return {"cost": {"type": "zarr", "path": spec.name or "."}}
    if spec.suffix == ".npy":
        return {"cost": {"type": "array", "values": {"npy": spec.name}}}
    if spec.suffix == ".npz":  # sparse costs
        return {"cost": spec_of(spec)}
    found = read_json(spec)
    if not isinstance(found, dict) or not ("cost" in found or "type" in found):
        raise InputError(f'{spec}: must be an object with "cost" (a job) or "type" (a cost spec)')
    return {"cost": found} if "type" in found else found  # a scaled cost has both


def _start(text: str) -> dict[str, Any]:
    """Return ``warm_start`` of a request: the id of a job, or a file's prices and pairs."""
    if not Path(text).exists() and not Path(text).suffix:
        return {"job": text}
    if Path(text).suffix != ".npz":
        return {"v": {"npy": os.path.abspath(text)}}
    result = warm_start_of(text)
    return {"v": result.v, "col4row": result.col4row}


def file_and_id(text: str) -> tuple[str, str]:
    """Split the value of ``--uploaded``. Raises InputError."""
    file, separator, array_id = text.rpartition("=")
    if not separator or not file or not array_id:
        raise InputError(f"--uploaded {text}: must be FILE=ID")
    return os.path.abspath(file), array_id


class FileArguments:
    """Uploads the ``.npy`` files and zarr stores that a request names, each once."""

    def __init__(
        self, client: Client, args: argparse.Namespace, folder: Path, uploaded: dict[str, str]
    ) -> None:
        self._client, self._args, self._folder = client, args, folder
        self._continued, self._done = uploaded, dict[str, str]()

    def check_uploaded(self) -> None:
        """Raise InputError for an upload to be continued of a file that the request has not named."""
        for file in self._continued.keys() - self._done.keys():
            raise InputError(f"--uploaded {file}: the request names no such file")

    def sent(self, spec: Any, pointer: str = "") -> Any:
        """Return ``spec`` with files replaced by the ids of uploaded arrays."""
        from bigsap.client.job_request import spec_of
        from bigsap.sources.spec_files import load_npy

        if isinstance(spec, Mapping):
            if spec.get("type") == "npy" and set(spec) == {"type", "path"}:
                spec = {"type": "array", "values": {"npy": spec["path"]}}
            if spec.get("type") == "zarr" and set(spec) == {"type", "path"}:
                found = self._array(spec["path"], f"{pointer}/path", lambda path, _: spec_of(path)["values"])
                return {"type": "array", "values": found}
            if set(spec) == {"npy"}:
                return self._array(spec["npy"], f"{pointer}/npy", load_npy)
            return {key: self.sent(value, f"{pointer}/{key}") for key, value in spec.items()}
        if isinstance(spec, list) and any(isinstance(value, Mapping) for value in spec):
            return [self.sent(value, f"{pointer}/{k}") for k, value in enumerate(spec)]
        return spec

    def _array(
        self, path: Any, pointer: str, read: Callable[[str, str], Array | RowBlocks]
    ) -> dict[str, str]:
        where = f"{self._args.spec}: {pointer}"
        if not isinstance(path, str):
            raise InputError(f"{where}: must be a path")
        file = os.path.abspath(self._folder / path)
        if file not in self._done:
            self._done[file] = self._upload(file, read(file, where))
        return {"array": self._done[file]}

    def _upload(self, file: str, array: Array | RowBlocks) -> str:
        from bigsap.client.arrays import refuse_nan

        name = os.path.basename(file)
        refuse_nan(array, shown(name))  # before anything of it is sent

        def show(done: int, total: int) -> None:
            end = "\n" if done == total else ""
            draw(f"\ruploading {shown(name)}: {done:,} of {total:,} rows{end}")

        try:
            array_id = self._client.upload(
                array,
                array_id=self._continued.get(file),
                progress=show if on_terminal() and not self._args.quiet else None,
            )
        except UploadError as error:
            note(self._args, f"to continue the upload: --uploaded {file}={error.array_id}")
            raise
        note(self._args, f"{name} is {array_id}")
        return array_id
