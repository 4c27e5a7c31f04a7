"""vLLM's metrics, by vLLM's names.

Names, labels and units as in vLLM 0.33.0, vllm/v1/metrics/loggers.py; those that need what the engine leaves
out, such as preemptions and prefix hits, are not here. Buckets are fewer than vLLM's.
"""

from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from text.engine import Engine

_SECONDS = (0.001, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
_LABELS = ("model_name", "engine")


class Metrics:
    """What /metrics shows.

    Args:
        engine: that is looked at.
        model: its name.
    """

    def __init__(self, engine: Engine, model: str) -> None:
        self._registry = CollectorRegistry()
        self._labels = (model, "0")
        running = self._gauge("num_requests_running", "Requests in the batch.")
        running.set_function(lambda: len(engine.running))
        waiting = self._gauge("num_requests_waiting", "Requests that wait for the batch.")
        waiting.set_function(lambda: len(engine.waiting))
        cache = self._gauge("kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.")
        cache.set_function(lambda: engine.cache_use)
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts that were read.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens that were made.")
        self.first_token = self._histogram("time_to_first_token_seconds", "Until the first token.")
        self.next_token = self._histogram("inter_token_latency_seconds", "Between two tokens.")
        self.whole = self._histogram("e2e_request_latency_seconds", "Until the last token.")
        self.queued = self._histogram("request_queue_time_seconds", "Until the batch has room.")
        success = Counter(
            "vllm:request_success",
            "Requests that were finished.",
            (*_LABELS, "finished_reason"),
            registry=self._registry,
        )
        self.success = success.labels(*self._labels, "length")
        compute = Gauge(
            "compute_info", "What answers requests.", ("compute", "device"), registry=self._registry
        )
        compute.labels("simulated", "none").set(1)

    async def page(self, _request: web.Request) -> web.Response:
        """Answer /metrics."""
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    def _gauge(self, name: str, text: str) -> Gauge:
        gauge = Gauge(f"vllm:{name}", text, _LABELS, registry=self._registry)
        return gauge.labels(*self._labels)

    def _counter(self, name: str, text: str) -> Counter:
        counter = Counter(f"vllm:{name}", text, _LABELS, registry=self._registry)
        return counter.labels(*self._labels)

    def _histogram(self, name: str, text: str) -> Histogram:
        histogram = Histogram(
            f"vllm:{name}", text, _LABELS, buckets=_SECONDS, registry=self._registry
        )
        return histogram.labels(*self._labels)
