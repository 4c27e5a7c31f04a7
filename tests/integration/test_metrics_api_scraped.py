# mypy: disable-error-code="no-untyped-def, import-not-found"
"""A workload's counters and histograms, scraped by `gpuscale metrics-api` and served by rules."""

import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

pytestmark = pytest.mark.timeout(180)
GPUSCALE = Path(sys.executable).parent / "gpuscale"
RULES = """
externalRules:
- seriesQuery: vllm:request_success_total
  resources: {namespaced: false}
  name: {as: requests_per_second}
  metricsQuery: sum(rate(vllm:request_success_total{<<.LabelMatchers>>}[10s]))
- seriesQuery: vllm:time_to_first_token_seconds_bucket
  resources: {namespaced: false}
  name: {as: ttft_p75}
  metricsQuery: >-
    histogram_quantile(0.75,
    sum(rate(vllm:time_to_first_token_seconds_bucket{<<.LabelMatchers>>}[10s])) by (le))
- seriesQuery: vllm:num_requests_waiting
  resources: {namespaced: false}
  name: {as: fullness}
  parts:
  - {name: queue, query: 'sum(vllm:num_requests_waiting{<<.LabelMatchers>>})', threshold: 5}
  - {name: kv cache, query: 'max(vllm:kv_cache_usage_perc{<<.LabelMatchers>>})', threshold: 0.8}
"""


class ModelServer:
    """Ten requests a second end; of four, two take up to a second and two up to two."""

    def __init__(self) -> None:
        self.port = unused_port()
        self.began = time.monotonic()
        self.cache = "vllm:kv_cache_usage_perc 0.4\n"

    async def page(self, _):
        count = 10 * (time.monotonic() - self.began)
        name = "vllm:time_to_first_token_seconds"
        return web.Response(
            text=(
                "# TYPE vllm:request_success counter\n"
                f"vllm:request_success_total {count}\n"
                f"# TYPE {name} histogram\n"
                f'{name}_bucket{{le="1"}} {count / 2}\n{name}_bucket{{le="2"}} {count}\n'
                f'{name}_bucket{{le="+Inf"}} {count}\n{name}_sum {count}\n{name}_count {count}\n'
                f"vllm:num_requests_waiting 7\n{self.cache}"
            )
        )


@pytest.fixture
async def served(tmp_path):
    """Yield the model server, and what asks the metrics API for an external metric."""
    server, port = ModelServer(), unused_port()
    app = web.Application()
    app.router.add_get("/metrics", server.page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", server.port).start()
    (tmp_path / "rules.yaml").write_text(RULES)
    process = await asyncio.create_subprocess_exec(
        GPUSCALE,
        "metrics-api",
        f"--config={tmp_path / 'rules.yaml'}",
        "--source=streams",
        f"--scrape=http://127.0.0.1:{server.port}/metrics",
        "--scrape-interval=1s",
        "--secure-port=0",
        f"--insecure-loopback-port={port}",
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    async with aiohttp.ClientSession() as session:

        async def ask(metric, why=""):
            place = "apis/external.metrics.k8s.io/v1beta1/namespaces/ml"
            async with session.get(f"http://127.0.0.1:{port}/{place}/{metric}{why}") as answer:
                return await answer.text()

        async def value(metric):
            with suppress(aiohttp.ClientError, KeyError, IndexError, ValueError):
                return json.loads(await ask(metric))["items"][0]["value"]
            return None

        yield server, value, ask
    process.terminate()
    await process.wait()
    await runner.cleanup()


async def until_value(value, metric, is_right):
    """Return once a metric has a right value; the test's time limit ends the wait."""
    while not is_right(await value(metric)):  # noqa: ASYNC110 - another process answers
        await asyncio.sleep(0.2)


def number(text):
    """Return the number of a quantity; 0 of none."""
    text = text or "0"
    return float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)


async def test_rates_and_quantiles_of_a_pods_own_page_are_served(served) -> None:
    server, value, ask = served
    # Until the scrapes cover the range of 10 s, a rate is extrapolated and lower.
    await until_value(value, "requests_per_second", lambda found: 9 < number(found) < 11)
    # Of four requests the third: half way through the second bucket, from 1 to 2.
    assert number(await value("ttft_p75")) == pytest.approx(1.5, abs=0.01)
    assert await value("fullness") == "1400m"  # 7 of 5, and 0.4 of 0.8
    assert "queue 7 of 5, 1.4 full; kv cache 0.4 of 0.8, 0.5 full" in await ask("fullness", "?why")
    server.cache = ""
    await until_value(value, "fullness", lambda found: found is None)
    # The parts are asked for one by one; an answer serves for a second (--value-freshness).
    while "no value of kv cache" not in await ask("fullness", "?why"):  # noqa: ASYNC110
        await asyncio.sleep(0.2)
