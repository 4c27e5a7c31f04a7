# mypy: disable-error-code="no-untyped-def"
"""OpenTelemetry's own SDK pushes to `gpuscale metrics-api`, and rules serve what it pushed."""

import asyncio
import gzip
import json
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import unused_port

pytestmark = pytest.mark.timeout(180)
GPUSCALE = Path(sys.executable).parent / "gpuscale"
PATH = "/otlp/v1/metrics"
RULES = """
rules:
- seriesQuery: '{__name__="queue_length",k8s_pod_name!=""}'
  resources:
    overrides: {k8s_namespace_name: {resource: namespace}, k8s_pod_name: {resource: pod}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: http_requests_total
  resources: {namespaced: false}
  metricsQuery: sum(http_requests_total{<<.LabelMatchers>>})
- seriesQuery: http_server_duration_seconds_bucket
  resources: {namespaced: false}
  name: {as: duration_p50}
  metricsQuery: histogram_quantile(0.5, sum(http_server_duration_seconds_bucket{<<.LabelMatchers>>}) by (le))
"""
PROGRAM = """
import sys
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=sys.argv[1]), 3_600_000)
resource = Resource({"service.name": "web", "service.instance.id": "web-0",
    "k8s.namespace.name": "ml", "k8s.pod.name": "web-0"})
view = View(instrument_name="*duration", aggregation=ExplicitBucketHistogramAggregation([1.0, 2.0]))
provider = MeterProvider([reader], resource, views=[view])
meter = provider.get_meter("test")
meter.create_counter("http.requests", "{request}").add(12, {"code": "200"})
meter.create_gauge("queue.length").set(7)
duration = meter.create_histogram("http.server.duration", "s")
for seconds in (0.5, 0.5, 1.5, 1.5, 1.5, 1.5):
    duration.record(seconds)
print(provider.force_flush())
provider.shutdown()
"""


@pytest.fixture
async def server(tmp_path):
    """Yield the server's address and a session."""
    port = unused_port()
    (tmp_path / "rules.yaml").write_text(RULES)
    process = await asyncio.create_subprocess_exec(
        GPUSCALE,
        "metrics-api",
        f"--config={tmp_path / 'rules.yaml'}",
        "--source=streams",
        "--receive-otlp",
        "--secure-port=0",
        f"--insecure-loopback-port={port}",
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    # A connection whose body was not read is closed behind the answer.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        while not await _is_up(session, url):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.2)
        yield url, session
    process.terminate()
    await process.wait()


async def _is_up(session, url):
    """Return whether requests reach the collector."""
    with suppress(aiohttp.ClientError):
        async with session.post(url + PATH, json={}) as answer:
            return answer.status == 200
    return False


async def values(session, url, path):
    async with session.get(f"{url}/apis/{path}") as answer:
        body = await answer.json()
    return [item["value"] for item in body.get("items", [])]


async def test_what_the_sdk_pushes_is_served_by_rules(server) -> None:
    url, session = server
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        url + PATH,
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await program.communicate()
    assert (program.returncode, printed) == (0, b"True\n")
    pod = "custom.metrics.k8s.io/v1beta2/namespaces/ml/pods/web-0/queue_length"
    while await values(session, url, pod) != ["7"]:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.2)
    external = "external.metrics.k8s.io/v1beta1/namespaces/ml"
    assert await values(session, url, f"{external}/http_requests_total") == ["12"]
    # Of six the third: a quarter into the second bucket, 1 + (3 - 2) / 4.
    assert await values(session, url, f"{external}/duration_p50") == ["1250m"]
    async with session.get(url + "/metrics") as answer:
        text = await answer.text()
    assert 'gpuscale_metrics_api_otlp_samples_total{result="stored"}' in text


async def status(session, url, data, **headers):
    headers = {"Content-Type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    async with session.post(url + PATH, data=BytesIO(data), headers=headers) as answer:
        return answer.status


async def test_bodies_are_bounded_and_refused_by_what_is_wrong(server) -> None:
    url, session = server
    most = 4 * 1024 * 1024
    assert await status(session, url, b"{}" + b" " * (most - 2)) == 200
    assert await status(session, url, b"{}" + b" " * (most - 1)) == 413
    bomb = gzip.compress(b" " * 512 * 1024 * 1024, 1)
    assert await status(session, url, bomb, Content_Encoding="gzip") == 413
    assert await status(session, url, gzip.compress(b"{}"), Content_Encoding="gzip") == 200
    assert await status(session, url, b"no gzip", Content_Encoding="gzip") == 400
    assert await status(session, url, b"{") == 400
    assert await status(session, url, b"{}", Content_Type="text/plain") == 415
    async with session.get(url + PATH) as answer:
        assert answer.status == 405


async def test_slow_clients_are_few_and_end_and_delta_is_a_partial_success(server) -> None:
    url, session = server
    port = int(url.rpartition(":")[2])
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9"
    slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
    for _, writer in slow:
        writer.write(f"{head}\r\n\r\n{{".encode())
    while await status(session, url, b"{}") != 429:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.1)
    for reader, writer in slow:
        assert await reader.readline() == b"HTTP/1.1 408 Request Timeout\r\n"
        writer.close()
        await writer.wait_closed()
    delta = {"aggregationTemporality": 1, "dataPoints": [{"asDouble": 1}]}
    metrics = [{"name": "m", "sum": delta}]
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}
    async with session.post(url + PATH, json=body) as answer:
        found = json.loads(await answer.text())["partialSuccess"]
    assert found["rejectedDataPoints"] == "1"
    assert "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative" in found["errorMessage"]


async def test_without_the_flag_there_is_no_such_path(tmp_path) -> None:
    port = unused_port()
    (tmp_path / "rules.yaml").write_text(RULES)
    process = await asyncio.create_subprocess_exec(
        GPUSCALE,
        "metrics-api",
        f"--config={tmp_path / 'rules.yaml'}",
        "--source=streams",
        "--secure-port=0",
        f"--insecure-loopback-port={port}",
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    async with aiohttp.ClientSession() as session:
        found = 0
        while not found:
            with suppress(aiohttp.ClientError):
                found = await status(session, f"http://127.0.0.1:{port}", b"{}")
            await asyncio.sleep(0.1)
    process.terminate()
    await process.wait()
    assert found == 404
