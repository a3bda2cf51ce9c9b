"""The metrics of /metrics; they contain no texts, keys or addresses."""

from __future__ import annotations

import os
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

SECOND_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64)
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # a folder in which several processes of one service count


class Measures:
    """Counters of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter(
            "saccade_requests", "Requests by route and status.", ["route", "status"], **make
        )
        self.seconds = Histogram(
            "saccade_request_seconds",
            "Seconds to an answer.",
            ["route"],
            buckets=SECOND_BUCKETS,
            **make,
        )
        self.batches = Histogram(
            "saccade_batch_size", "Texts in one step or batch.", buckets=SIZE_BUCKETS, **make
        )
        self.tokens = Counter("saccade_generated_tokens", "Tokens of finished outputs.", **make)
        self.waiting = Gauge(
            "saccade_waiting",
            "Texts that wait or are worked on.",
            multiprocess_mode="livesum",
            **make,
        )

    def observe(self, name: str, value: float) -> None:
        if name == "tokens":
            self.tokens.inc(value)
        else:
            self.batches.observe(value)

    def request(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self, waiting: int) -> tuple[bytes, str]:
        self.waiting.set(waiting)
        registry = self.registry
        if os.environ.get(SHARED):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return generate_latest(registry), CONTENT_TYPE_LATEST
