"""What the server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from openrlhf_js.reward_model.batching import Part

CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters and histograms of one server."""

    def __init__(self, waiting: Callable[[], int]):
        self._registry = here = CollectorRegistry()
        prefix = "openrlhf_js_reward"
        self._requests = Counter(
            f"{prefix}_requests", "Requests by HTTP status", ["status"], registry=here
        )
        self._seconds = Histogram(
            f"{prefix}_request_seconds", "From head to answer", buckets=SECONDS, registry=here
        )
        self._texts = Counter(f"{prefix}_texts", "Texts that were scored", registry=here)
        self._batch = Histogram(
            f"{prefix}_batch_texts", "Texts in the model together", buckets=TEXTS, registry=here
        )
        self._model = Counter(
            f"{prefix}_model_seconds", "Time that the model was at work", registry=here
        )
        self._failures = Counter(
            f"{prefix}_model_failures", "Batches that the model failed on", registry=here
        )
        self._odd = Counter(
            f"{prefix}_not_finite", "Requests with a score that is no number", registry=here
        )
        queue = Gauge(f"{prefix}_queue_texts", "Texts that wait", registry=here)
        queue.set_function(waiting)

    def request(self, status: int, seconds: float) -> None:
        self._requests.labels(status).inc()
        self._seconds.observe(seconds)

    def part(self, part: Part) -> None:
        """Counts what the model has done; called in the model's thread."""
        self._model.inc(part.seconds)
        if part.failed:
            self._failures.inc()
        else:
            self._texts.inc(part.texts)
            self._batch.observe(part.texts)

    def not_finite(self) -> None:
        self._odd.inc()

    def text(self) -> bytes:
        """In the format that Prometheus reads."""
        return generate_latest(self._registry)
