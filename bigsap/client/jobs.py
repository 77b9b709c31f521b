"""A client of the BigSAP service: submit, wait, fetch, cancel, upload.

>>> client = Client("http://127.0.0.1:8765")                          # doctest: +SKIP
>>> cost = bigsap.points(x, y)                                        # doctest: +SKIP
>>> res = client.submit(cost).wait(progress=True).result()            # doctest: +SKIP
>>> res.verify(cost)                                                  # doctest: +SKIP

Needs ``pip install "bigsap[http]"``. A refused request raises ``ServiceError``.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from bigsap.client.arrays import fetch, fetch_ranked_costs, fetch_ranking, inline, upload
from bigsap.client.http import (
    JobFailedError,
    ServiceError,
    Transport,
    UnreachableError,
    UploadError,
    header_text,
    path_of,
)
from bigsap.client.job_request import RowBlocks, assignment_of, request_of, spec_of
from bigsap.client.shown import Shown
from bigsap.display.progress_bar import Bar
from bigsap.errors import InputError, number
from bigsap.result import Result, Status
from bigsap.sources.convert import cost_shape
from bigsap.types import Array

if TYPE_CHECKING:
    import httpx

    from bigsap.k_best import Assignments

__all__ = ["Client", "Job", "JobFailedError", "ServiceError", "UnreachableError", "UploadError"]

#: Seconds of one long poll.
_POLL = 25.0
#: Seconds between polls that are answered at once without a change; they grow.
_PAUSE, _LONGEST_PAUSE = 0.8, 2.0
_ENDED = ("succeeded", "failed", "cancelled")

Record = dict[str, Any]
_Found = TypeVar("_Found")


class Client:
    """A client of one service. Use it as a context manager, or ``close`` it. Thread-safe.

    url: the service's address, ``http://host:port``. key: an access key, if the service requires
    one. timeout: seconds without an answer after which a request has failed. patience: seconds for
    which a failed request, or one that a busy service has deferred, is repeated. Raises InputError
    if the address is not valid or a header cannot hold the key, and ImportError without httpx.
    """

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 30.0, patience: float = 30.0
    ) -> None:
        self._transport = Transport(url, key, timeout=timeout, patience=patience)

    @property
    def url(self) -> str:
        """The service's address."""
        return self._transport.url

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def capabilities(self) -> Record:
        """Return limits, devices, versions and cost types of the service."""
        return self._json("GET", "/v1/capabilities")

    def submit(
        self,
        spec: Any,
        *,
        options: Mapping[str, Any] | None = None,
        shape: Sequence[int] | None = None,
        label: str | None = None,
        k_best: int | None = None,
        spread: bool | int = False,
        wait: float | bool = False,
        progress: bool = False,
        idempotency_key: str | None = None,
    ) -> Job:
        """Start a job.

        spec: costs as for ``bigsap.solve``, if they can be sent: a matrix (array, memmap, nested
            list, h5py or zarr array, path of a ``.npy`` file or zarr store), sparse costs
            (``scipy.sparse``, ``bigsap.sparse``, path of a ``.npz`` file), ``bigsap.points``,
            ``lowrank``, ``table``, ``expression``, ``from_http``, and combinations of these by
            ``sum_of``, ``scaled``, ``masked`` and ``forbid_above``, the address of a zarr array
            or ``.npy`` file (``"https://..."``), which the service must allow. Or a cost spec
            (``{"type": ...}``) or a job request (``{"cost": ..., "options": ...}``), as a mapping
            or a ``.json`` file (``{"npy": path}`` in it is an array). Arrays are uploaded, by
            blocks; small ones are sent within the request.
        options: those of a job request (``{"maximize": True, "gap": 0.1}``), by their names there
            or in ``bigsap.solve``; they take precedence over the request's own.
        shape: (n_rows, n_columns), if the costs do not define it.
        label: a name by which ``jobs`` finds the job.
        k_best: rank so many assignments after the solve, the best first; see ``Job.k_best``.
        spread: True to have rows evaluated by several workers of the service's cluster, or the
            largest number of workers.
        wait: True, or seconds, to return only once the job has ended; progress draws a
            bar meanwhile.
        idempotency_key: submitting twice under one key makes one job. By default a new key is
            made, so that a request whose answer was lost is not carried out twice.
            With an access key that may not read, the first answer is returned again.

        Raises InputError for costs that cannot be sent, such as Python functions, with an
        alternative in the message; ServiceError if the request is refused; InvalidCostError for NaN
        in it, naming the first entry; TimeoutError after ``wait`` seconds: the job continues.
        """
        longest = None if isinstance(wait, bool) else _seconds("wait", wait)
        key = secrets.token_hex(16) if idempotency_key is None else idempotency_key
        headers = {"Idempotency-Key": header_text("the idempotency key", key)}
        body = self.request_of(spec, options=options, shape=shape)
        if label is not None:
            body["label"] = label
        if k_best is not None:
            body["k_best"] = _count(k_best)
        if spread is not False:
            body["spread"] = spread
        answer = self._transport.call("POST", "/v1/jobs", json=body, headers=headers)
        job = Job(self, answer.json(), answer.headers.get("ETag"))
        if answer.headers.get("Idempotency-Replayed") == "true":
            try:
                job.refresh()  # the answer may be the first one again, and out of date
            except ServiceError as error:
                if error.slug != "forbidden":  # the access key may only submit
                    raise
        if wait is not False:
            job.wait(longest, progress=progress)
        return job

    def certify(self, spec: Any, col4row: Any, v: Any = None, **given: Any) -> Job:
        """Start a job that proves how far an assignment is from the optimum.

        spec: the problem, as for ``submit``. col4row, v: as for ``bigsap.certify``; a ``Result`` in
            their place gives its assignment, or its prices. Pairs ``(row_ind, col_ind)`` need the
            ``shape``.
        given: of ``submit``: ``options``, ``shape``, ``label``, ``wait``, ...

        The job's result is this assignment, with its cost, bound and gap: ``optimal`` if it is
        proved to be so, else ``imprecise``. With prices the service reads the costs once; without
        them it solves the problem. The job fails (``invalid-assignment``) if it is not an
        assignment of allowed pairs.
        """
        request = request_of(spec, given.pop("options", None), given.get("shape"))
        request["assignment"] = assignment_of(request, col4row, v)
        return self.submit(request, **given)

    def estimate(
        self,
        spec: Any,
        *,
        options: Mapping[str, Any] | None = None,
        shape: Sequence[int] | None = None,
        k_best: int | None = None,
        spread: bool | int = False,
    ) -> Record:
        """Return the service's estimate: the whole request, memory and time.

        spec, options, shape, k_best, spread: as for ``submit``. Arrays are uploaded.
        """
        body = self.request_of(spec, options=options, shape=shape)
        if k_best is not None:
            body["k_best"] = _count(k_best)
        if spread is not False:
            body["spread"] = spread
        return self._json("POST", "/v1/jobs", json=body, params={"dry_run": "true"})

    def check(self, cost: Any, shape: Sequence[int] | None = None) -> Record:
        """Compile costs on the service and evaluate some of them. cost, shape: as for ``submit``."""
        body: Record = {"cost": inline(spec_of(cost), self.upload)}
        if shape is not None:
            body["shape"] = list(cost_shape(shape, "shape="))
        return self._json("POST", "/v1/costs:check", json=body)

    def request_of(
        self, spec: Any, *, options: Mapping[str, Any] | None = None, shape: Sequence[int] | None = None
    ) -> Record:
        """Return the arguments of ``submit`` as a job request in JSON types; upload the arrays in it.

        spec, options, shape: as for ``submit``.
        """
        found: Record = inline(request_of(spec, options, shape), self.upload)
        return found

    def job(self, job_id: str) -> Job:
        """Return a job by its ``job_id``. Raises ServiceError if there is none."""
        answer = self._transport.call("GET", path_of("jobs", job_id))
        return Job(self, answer.json(), answer.headers.get("ETag"))

    def jobs(
        self, *, state: str | None = None, label: str | None = None, limit: int | None = None
    ) -> Iterator[Job]:
        """Yield jobs, newest first, fetched page by page; at most ``limit`` of them.

        state, label: only jobs with these.
        """
        wanted = {"state": state, "label": label}
        for record in self._pages("/v1/jobs", "jobs", "page_size", limit, wanted):
            yield Job(self, record)

    def result(self, job_id: str, *, wait: bool = True, progress: bool = False) -> Result:
        """Return the result of the job ``job_id``, see ``Job.result``.

        wait: until it has ended; progress draws a bar meanwhile.
        """
        job = self.job(job_id)
        if wait:
            job.wait(progress=progress)
        return job.result()

    def cancel(self, job_id: str, mode: str = "graceful") -> Job:
        """Request the end of the job ``job_id``; mode: see ``Job.cancel``."""
        return Job(self, {"id": job_id}).cancel(mode)

    def delete(self, job_id: str) -> None:
        """Remove the job ``job_id``, which must have ended; see ``Job.delete``."""
        Job(self, {"id": job_id}).delete()

    def upload(
        self,
        array: Array | RowBlocks,
        *,
        array_id: str | None = None,
        block_bytes: int = 8 << 20,
        progress: Callable[[int, int], None] | None = None,
    ) -> str:
        """Upload a (n,) or (n, k) array of real numbers; return the id for use in specs.

        array: may be a memmap: blocks of rows of about ``block_bytes``, and no more than the
            service accepts, are read and sent one by one.
        array_id: an upload to continue: only missing rows are sent.
        progress: called with the number of rows that the service has, and of all rows.

        Raises UploadError if the service becomes unreachable half-way; its ``array_id`` continues
        the upload. Raises ServiceError if dtype or shape differ from the upload to be continued, or
        if the service has received other bytes than were sent.
        """
        return upload(self._transport, array, array_id=array_id, block_bytes=block_bytes, progress=progress)

    def arrays(self, *, limit: int | None = None) -> Iterator[Record]:
        """Yield the records of uploaded arrays, newest first; at most ``limit`` of them."""
        return self._pages("/v1/arrays", "arrays", "limit", limit, {})

    def delete_array(self, array_id: str) -> None:
        """Remove the uploaded array ``array_id``, which no unfinished job may use."""
        self._transport.call("DELETE", path_of("arrays", array_id))

    def events(self, job_id: str, after: int = 0) -> Iterator[Record]:
        """Yield the events of the job ``job_id`` as they happen: ``{"seq", "time", "kind", "data"}``.

        after: only events with a larger ``seq``. A lost connection is opened again, without losing
        events. Ends when the job has ended.
        """
        from bigsap.client.events import events

        return events(self._transport, job_id, after)

    def _pages(self, path: str, name: str, size: str, limit: int | None, wanted: Record) -> Iterator[Record]:
        """Yield the records of all pages. name: of their list. size: of the parameter of a page's size."""
        token: str | None = None
        given = 0
        while limit is None or given < limit:
            most = min(100, 100 if limit is None else limit - given)
            page = self._json("GET", path, params={**wanted, size: most, "page_token": token})
            yield from page[name]
            given += len(page[name])
            token = page.get("next_page_token")
            if not token:
                return

    def _json(self, method: str, path: str, **given: Any) -> Record:
        found: Record = self._transport.call(method, path, **given).json()
        return found


def _count(k: int) -> int:
    from bigsap.k_best import count_of  # here, since that loads the engine

    return count_of(k)


def _seconds(name: str, value: Any) -> float:
    seconds = number(value)
    if seconds is None or math.isnan(seconds):
        raise InputError(f"{name} must be a number of seconds, got {value!r}")
    return seconds


class Job:
    """A job of a service, as of the last answer. ``record`` is the whole answer."""

    def __init__(self, client: Client, record: Record, etag: str | None = None) -> None:
        self._client = client
        self._etag = etag
        self.record = record

    def __repr__(self) -> str:
        return f"<bigsap.client.Job {self.id} {self.state}>"

    @property
    def id(self) -> str:
        """The service's id of the job."""
        return str(self.record["id"])

    @property
    def state(self) -> str:
        """The state of the last answer: ``queued``, ``running``, ``succeeded``, ..."""
        return str(self.record["state"])

    @property
    def ended(self) -> bool:
        """Whether the job has reached its final state, unless it is resumed."""
        return self.state in _ENDED or "resume" in self.record["links"]

    @property
    def progress(self) -> Record:
        """The progress of the solve; empty before it has begun."""
        return dict(self.record.get("progress") or {})

    @property
    def outcome(self) -> Record | None:
        """A summary of the result: ``status``, ``success``, ``objective``, ``bound``, ``gap``."""
        found: Record | None = self.record.get("outcome")
        return found

    @property
    def problem(self) -> Record | None:
        """Why the job failed or was interrupted, a problem document."""
        found: Record | None = self.record.get("problem")
        return found

    def refresh(self, wait: float = 0.0) -> Job:
        """Fetch the record again; ``wait``: seconds to wait for a change."""
        headers = {"If-None-Match": self._etag} if self._etag and wait else {}
        answer = self._transport.call(
            "GET", self._path, headers=headers, params={"wait": f"{wait:g}"} if wait else None, wait=wait
        )
        return self if answer.status_code == 304 else self._heard(answer)

    def wait(
        self,
        timeout: float | None = None,
        *,
        progress: bool = False,
        callback: Callable[[Job], None] | None = None,
    ) -> Job:
        """Wait until the job has ended, in any state.

        progress: draw a bar on stderr (tqdm's if installed). callback: called whenever the job has
        changed. Raises TimeoutError after ``timeout`` seconds; the job continues.
        """
        end = None if timeout is None else time.monotonic() + _seconds("timeout", timeout)
        pause = _PAUSE
        bar = Bar() if progress else None
        try:
            while True:
                if bar is not None and self.progress:
                    bar.update(Shown(self.record))
                if callback is not None:
                    callback(self)
                if self.ended:
                    return self
                left = _POLL if end is None else min(_POLL, end - time.monotonic())
                if left <= 0:
                    raise TimeoutError(f"{self.id} is {self.state} after {timeout:g} s")
                before, asked = (self.record, self._etag), time.monotonic()
                self.refresh(wait=left)
                rest = min(pause, left) - (time.monotonic() - asked)
                if (self.record, self._etag) != before:
                    pause = _PAUSE
                elif rest > 0:
                    # The service does not allow waiting, or is stopping: do not repeat the request
                    # at once.
                    time.sleep(rest)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            if bar is not None:
                bar.close()

    def result(self) -> Result:
        """Return the result, with its arrays downloaded, as ``bigsap.solve`` would.

        A cancelled job that had found an assignment has a result too. Raises JobFailedError if the
        job failed, and ServiceError (``no-result``) if there is no result yet.
        """
        return self._fetched(fetch)

    def k_best(self) -> Assignments:
        """Return the ranking of a job submitted with ``k_best``, as ``bigsap.solve_k_best`` would.

        One that was stopped has the assignments known by then, and its ``status`` says so. Raises as
        ``result``, and ServiceError (``not-found``) if the job was not asked for a ranking or was stopped
        before any was known.
        """
        return self._fetched(fetch_ranking)

    def ranked_costs(self) -> tuple[Array, bool, Status] | None:
        """Return costs, ``complete`` and ``status`` of the ranking, without the assignments.

        None if the job was not asked for a ranking or was stopped before any was known. Raises as ``result``.
        """
        return self._fetched(fetch_ranked_costs)

    def _fetched(self, fetch: Callable[[Transport, str, Record], _Found]) -> _Found:
        summary = self._summary()
        while True:
            found = fetch(self._transport, self.id, summary)
            # The arrays are of the latest attempt: one that has ended meanwhile does not fit the summary.
            before, summary = summary, self._summary()
            if summary.get("attempt") == before.get("attempt"):
                return found

    def _summary(self) -> Record:
        try:
            return self._client._json("GET", f"{self._path}/result")
        except ServiceError as error:
            if error.slug == "no-result" and self.refresh().ended:
                raise JobFailedError(self.record, self.problem or error.problem) from None
            raise

    def cancel(self, mode: str = "graceful") -> Job:
        """Request the end of the job.

        mode: ``graceful`` keeps the best assignment so far, its bound and a checkpoint; ``now`` ends the
        worker process.
        """
        return self._heard(self._transport.call("POST", f"{self._path}/cancel", json={"mode": mode}))

    def resume(self) -> Job:
        """Start another attempt, from the checkpoint of the last."""
        return self._heard(self._transport.call("POST", f"{self._path}/resume", again=False))

    def delete(self) -> None:
        """Remove the record and all files. Refused while the job is active."""
        self._transport.call("DELETE", self._path)

    def events(self, after: int = 0) -> Iterator[Record]:
        """Yield the job's events; after: see ``Client.events``."""
        return self._client.events(self.id, after)

    @property
    def _transport(self) -> Transport:
        return self._client._transport

    @property
    def _path(self) -> str:
        return path_of("jobs", self.id)

    def _heard(self, answer: httpx.Response) -> Job:
        self.record, self._etag = answer.json(), answer.headers.get("ETag")
        return self
