"""gpuscale's metrics APIs over a series store that a test fills, for a control plane's HPA controller."""

import asyncio
import ssl
import threading
from contextlib import contextmanager

from aiohttp import web

from gpuscale.base.clock import WallClock
from gpuscale.kube.informers.records import ObjectRecord
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.routes import add_routes
from gpuscale.server.metricsapi.usage.measured import UsageProvider
from gpuscale.server.rules.config import load_rules
from gpuscale.server.sources.embedded import EmbeddedSource

GROUP_VERSIONS = (
    "custom.metrics.k8s.io/v1beta1",
    "custom.metrics.k8s.io/v1beta2",
    "external.metrics.k8s.io/v1beta1",
)
USAGE_GROUP_VERSION = "metrics.k8s.io/v1beta1"
SM_UTIL = "DCGM_CUSTOM_PROCESS_SM_UTIL"
RULES = """
rules:
- seriesQuery: DCGM_CUSTOM_PROCESS_SM_UTIL{}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
  resources:
    overrides:
      NamespaceName: {resource: namespace}
      NodeName: {resource: node}
      PodName: {resource: pod}
- seriesQuery: queue_length{service!=""}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
  resources:
    overrides:
      namespace: {resource: namespace}
      service: {resource: service}
externalRules:
- seriesQuery: jobs_waiting{}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (team)
  resources:
    overrides:
      namespace: {resource: namespace}
resourceRules:
  cpu:
    containerLabel: container
    containerQuery: sum by (<<.GroupBy>>) (container_cpu_cores{<<.LabelMatchers>>})
    nodeQuery: sum by (<<.GroupBy>>) (node_cpu_cores{<<.LabelMatchers>>})
    resources: &labels
      overrides: {namespace: {resource: namespace}, node: {resource: node}, pod: {resource: pod}}
  memory:
    containerLabel: container
    containerQuery: sum by (<<.GroupBy>>) (container_memory_bytes{<<.LabelMatchers>>})
    nodeQuery: sum by (<<.GroupBy>>) (node_memory_bytes{<<.LabelMatchers>>})
    resources: *labels
  window: 1s
"""


class ClusterPods:
    """Names of pods, asked of the control plane as an administrator would."""

    def __init__(self, plane) -> None:
        self.plane = plane

    def names(self, resource, namespace, selector):
        found = self.plane.get("pods", "-n", namespace, "-l", str(selector))
        return tuple(each["metadata"]["name"] for each in found["items"])

    async def running_pods(self, namespace, selector):
        asked = (
            "pods",
            "-n",
            namespace,
            "-l",
            str(selector),
            "--field-selector=status.phase=Running",
        )
        found = (await asyncio.to_thread(self.plane.get, *asked))["items"]
        metas = [each["metadata"] for each in found]
        return tuple(ObjectRecord(m["namespace"], m["name"], m.get("labels", {})) for m in metas)

    async def nodes(self, selector):
        return ()


class MetricsServer:
    """gpuscale's metrics API over a series store, with TLS on a port of localhost, in a thread."""

    def __init__(self, plane, certificate, rules=RULES) -> None:
        self.store = SeriesStore()
        self.seen: list[tuple[str, str, str]] = []
        """User, name in the client's certificate, and path of each request."""
        self.port = 0
        self._clock = WallClock()
        rules, source, pods = (
            load_rules(rules, "rules.yaml", disables=True),
            EmbeddedSource(self.store),
            ClusterPods(plane),
        )
        self._provider = MetricsProvider(rules, source, pods, self._clock)
        self._usage = UsageProvider(lambda: rules.resource_rules, source.query, pods, self._clock)
        self._context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=str(plane.front_proxy_ca)
        )
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(certificate.certificate, certificate.key)

    @contextmanager
    def running(self):
        started = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)))
        thread.start()
        assert started.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._finish.set)
            thread.join(10)

    def put(self, name: str, value: float, **labels: str) -> None:
        """Set a series and let discovery see it."""

        async def put() -> None:
            self.store.append({"__name__": name, **labels}, self._clock.now_ms(), value)
            await self._provider.relist()

        asyncio.run_coroutine_threadsafe(put(), self._loop).result(10)

    async def _serve(self, started) -> None:
        self._loop, self._finish = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(middlewares=[self._note])
        add_routes(app, self._provider, usage=self._usage)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "localhost", 0, ssl_context=self._context)
        await site.start()
        self.port = runner.addresses[0][1]
        # Until the first discovery, lists of metrics are 503 and the APIServices unavailable.
        await self._provider.relist()
        started.set()
        await self._finish.wait()
        # Closing TLS waits for the other side's goodbye, and this loop ends at once.
        for connection in runner.server.connections:
            connection.transport.abort()
        await runner.cleanup()
        await asyncio.sleep(0.1)

    @web.middleware
    async def _note(self, request, handler):
        subject = dict(pair for (pair,) in request.transport.get_extra_info("peercert")["subject"])
        user = request.headers.get("X-Remote-User", "")
        self.seen.append((user, subject["commonName"], request.raw_path))
        return await handler(request)
