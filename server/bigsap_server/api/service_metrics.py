"""Prometheus metrics at ``/metrics``."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bigsap_server.jobs.model import FINISHED, JobRow

MEDIA_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """Metrics of one server. Incremented on the event loop, read on any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        short = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)
        long, longer = (0.1, 1, 10, 60, 600, 3600, 36000), (0.1, 1, 10, 60, 600, 3600, 36000, 360000)
        self.requests = counter("bigsap_requests_total", "Requests answered", ("method", "route", "status"))
        self.seconds = histogram(
            "bigsap_request_seconds", "Seconds until the answer began", ("route",), buckets=short
        )
        self.submitted = counter("bigsap_jobs_submitted_total", "Jobs accepted")
        self.spread = counter("bigsap_spread_jobs_total", "Accepted jobs over several workers")
        self.uploaded = counter("bigsap_uploaded_bytes_total", "Bytes of arrays received")
        self.waited = histogram(
            "bigsap_job_queue_seconds", "Seconds from submission to the first attempt", buckets=long
        )
        self.took = histogram(
            "bigsap_job_seconds", "Seconds from the first attempt to the end", ("state",), buckets=longer
        )
        self.failed = counter("bigsap_jobs_failed_total", "Failed jobs by reason", ("reason",))
        self.streams = Gauge("bigsap_event_streams", "Open event streams", registry=self.registry)

    def watch(
        self,
        jobs: Callable[[], Mapping[str, int]],
        workers: Callable[[], Mapping[str, int]],
        memory: Callable[[], Mapping[str, int]],
        held: Callable[[], int],
        folder: Path,
    ) -> None:
        """Export what is counted when scraped: jobs, workers and their memory, held jobs, free bytes."""
        self.registry.register(_Counts("bigsap_jobs", "Jobs by state", "state", jobs))
        self.registry.register(_Counts("bigsap_workers", "Workers by what they do", "doing", workers))
        text = "Memory of the server's own workers"
        self.registry.register(_Counts("bigsap_worker_memory_bytes", text, "worker", memory))
        gauge = partial(Gauge, registry=self.registry)
        text = "Queued jobs whose key has as many running as it may"
        gauge("bigsap_jobs_held", text).set_function(held)
        free = gauge("bigsap_disk_free_bytes", "Free space for jobs and uploads")
        free.set_function(lambda: shutil.disk_usage(folder).free)

    def follow(self, job_id: str, job: JobRow | None) -> None:
        """Count a change of a job. Called once for each commit, by the thread that made it."""
        if job is None:
            return
        if job.state == "starting" and job.attempt == 1 and job.started is not None:
            self.waited.observe(max(0.0, job.started - job.created))  # the clock may have been set back
        elif job.state in FINISHED and job.finished is not None and job.started is not None:
            self.took.labels(job.state).observe(max(0.0, job.finished - job.started))
        if job.state == "failed":
            self.failed.labels(str((job.problem or {}).get("type", "")).rpartition(":")[2]).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Counts(Collector):
    def __init__(self, name: str, text: str, label: str, counts: Callable[[], Mapping[str, int]]) -> None:
        self._family, self._counts = (name, text, label), counts

    def collect(self) -> Iterable[GaugeMetricFamily]:
        name, text, label = self._family
        family = GaugeMetricFamily(name, text, labels=[label])
        for value, count in self._counts().items():
            family.add_metric([value], count)
        yield family
