"""Prometheus metrics at ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

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

MEDIA_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """Metrics of one server. Incremented on the event loop, read on any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "bigsap_requests_total",
            "Requests answered",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "bigsap_request_seconds",
            "Seconds until the answer began",
            ("route",),
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30),
            registry=self.registry,
        )
        self.submitted = Counter("bigsap_jobs_submitted_total", "Jobs accepted", registry=self.registry)
        self.spread = Counter(
            "bigsap_spread_jobs_total", "Accepted jobs over several workers", registry=self.registry
        )
        self.uploaded = Counter(
            "bigsap_uploaded_bytes_total", "Bytes of arrays received", registry=self.registry
        )
        self.streams = Gauge("bigsap_event_streams", "Open event streams", registry=self.registry)

    def watch_jobs(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Export the number of jobs in each state, computed when scraped."""
        self.registry.register(_Counts("bigsap_jobs", "Jobs by state", "state", counts))

    def watch_workers(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Export the number of the cluster's workers by activity."""
        self.registry.register(_Counts("bigsap_workers", "Workers by what they do", "doing", counts))

    def text(self) -> bytes:
        """Return the metrics in the exposition format."""
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
