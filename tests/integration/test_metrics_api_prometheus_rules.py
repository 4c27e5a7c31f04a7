"""Prometheus rules of `gpuscale metrics-api --source streams`: recorded, served, reloaded, kept when bad."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

pytestmark = pytest.mark.timeout(180)  # two processes start, on machines of two slow cores

GPUSCALE = Path(sys.executable).parent / "gpuscale"
ADAPTER = """
externalRules:
- seriesQuery: recorded
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
"""
GOOD = """
groups:
- name: g
  interval: 1s
  rules:
  - {record: recorded, expr: queue * 2}
  - {alert: Long, expr: queue > 20, annotations: {summary: "{{ $value }} wait"}}
"""
FAILING = GOOD.replace("queue * 2", "queue * on () group_left queue")
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/recorded"


async def _queue(_request):
    return web.Response(text='queue{of="a"} 21\nqueue{of="b"} 5\n')


@asynccontextmanager
async def served(folder, *arguments):
    """Run a target and the server over it; give the server's address and the collector's socket."""
    app = web.Application()
    app.router.add_get("/metrics", _queue)
    (folder / "adapter.yaml").write_text(ADAPTER)
    port = unused_port()
    async with TestServer(app) as target:
        with (folder / "log").open("w") as log:
            process = await asyncio.create_subprocess_exec(
                GPUSCALE,
                "metrics-api",
                "--source=streams",
                f"--scrape={target.make_url('/metrics')}",
                "--scrape-interval=1s",
                f"--config={folder / 'adapter.yaml'}",
                f"--prometheus-rules={folder / 'rules'}",
                "--secure-port=0",
                f"--insecure-loopback-port={port}",
                *arguments,
                env={**os.environ, "TMPDIR": str(folder)},
                stdout=log,
                stderr=log,
            )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            await process.wait()


async def until(condition, limit_s=60) -> None:
    async with asyncio.timeout(limit_s):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.2)


async def fetch(url, path, **options):
    try:
        async with (
            aiohttp.ClientSession(**options) as session,
            session.get(f"{url}{path}") as answer,
        ):
            return await answer.text()
    except aiohttp.ClientError:
        return ""


async def of_collector(folder, path):
    """Return the data of an answer on the collector's socket."""
    (socket,) = folder.glob("gpuscale-*/collector.sock")
    connector = aiohttp.UnixConnector(str(socket))
    return json.loads(await fetch("http://collector", path, connector=connector))["data"]


async def test_rules_are_evaluated_served_reloaded_and_kept_when_bad() -> None:
    with TemporaryDirectory(prefix="rules-") as name:
        folder = Path(name)
        (folder / "rules").mkdir()
        rules = folder / "rules" / "gpu.yaml"
        rules.write_text(GOOD)
        async with served(folder) as url:

            async def is_served():
                return '"value":"52"' in await fetch(url, EXTERNAL)

            await until(is_served)  # (21 + 5) * 2
            (group,) = (await of_collector(folder, "/api/v1/rules"))["groups"]
            assert [rule["health"] for rule in group["rules"]] == ["ok", "ok"]
            (alert,) = (await of_collector(folder, "/api/v1/alerts"))["alerts"]
            assert (alert["state"], alert["annotations"]) == ("firing", {"summary": "21 wait"})
            (target,) = (await of_collector(folder, "/api/v1/targets"))["activeTargets"]
            assert (target["health"], target["scrapePool"]) == ("up", "scrape")
            config = (await of_collector(folder, "/api/v1/status/config"))["yaml"]
            assert "evaluation_interval: 15s" in config

            rules.write_text(GOOD.replace("queue * 2", "queue * ("))

            async def is_refused():
                return "[+]prometheus-rules ok: the last good rules stay" in await fetch(
                    url, "/readyz?verbose"
                )

            await until(is_refused)
            assert await is_served()
            metrics = await fetch(url, "/metrics")
            assert "gpuscale_prometheus_rule_files_last_reload_successful 0" in metrics
            rules.write_text(FAILING)

            async def is_failing():
                return "rule g/recorded fails: found duplicate series" in await fetch(
                    url, "/readyz?verbose"
                )

            await until(is_failing)
            metrics = await fetch(url, "/metrics")
            labels = f'{{rule_group="{rules};g"}}'
            assert f"prometheus_rule_evaluation_failures_total{labels}" in metrics
            assert f"prometheus_rule_group_rules{labels} 2" in metrics
            assert "gpuscale_prometheus_rule_files_last_reload_successful 1" in metrics

            async def is_gone():
                return '"items":[]' in (await fetch(url, EXTERNAL)).replace(" ", "")

            # What can't be computed any more is absent, not an old value.
            await until(is_gone)
        assert "rule recorded of group g failed" in (folder / "log").read_text()


async def test_a_pending_alert_goes_on_after_a_restart() -> None:
    with TemporaryDirectory(prefix="rules-") as name:
        folder = Path(name)
        (folder / "rules").mkdir()
        (folder / "rules" / "gpu.yaml").write_text(
            "groups:\n- name: g\n  interval: 1s\n  rules:\n  - {alert: Long, expr: queue > 20, for: 1h}\n"
        )
        saved = f"--store-directory={folder / 'saved'}"

        async def active_since():
            try:
                found = (await of_collector(folder, "/api/v1/alerts"))["alerts"]
            except (ValueError, aiohttp.ClientError):
                return None
            return datetime.fromisoformat(found[0]["activeAt"]) if found else None

        async def is_recorded():
            query = "/api/v1/query?query=ALERTS_FOR_STATE"
            try:
                return (await of_collector(folder, query))["result"]
            except (ValueError, aiohttp.ClientError):
                return None

        async with served(folder, saved):
            await until(is_recorded)
            before = await active_since()
            await asyncio.sleep(15)  # longer than a start takes on a busy machine
        stopped = datetime.now(UTC)
        async with served(folder, saved):
            started = datetime.now(UTC)
            await until(active_since)
            # Restored with the second evaluation.
            await until(lambda: _is_below(active_since, started))
            after = await active_since()
        # It has been pending since before the restart, less the time that nothing was evaluated.
        assert before < after < started
        assert (after - before) < (datetime.now(UTC) - stopped) + timedelta(seconds=5)


async def _is_below(asked, limit):
    found = await asked()
    return found is not None and found < limit


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--source=streams", "--prometheus-rules=RULES"],
            "RULES:4: groups[0].rules[0].expr: found 'sum(': ",
        ),
        (["--source=streams", "--prometheus-rules=missing.yaml"], "missing.yaml: can't be read"),
        (["--prometheus-rules=RULES"], "--prometheus-rules: found it beside --source=prometheus"),
        (["--source=streams", "--prometheus-rules="], "--prometheus-rules: found nothing"),
    ],
)
def test_what_is_wrong_at_the_start_ends_it(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("groups:\n- name: g\n  rules:\n  - {record: a, expr: 'sum('}\n")
    done = subprocess.run(
        [
            GPUSCALE,
            "metrics-api",
            *(each.replace("RULES", str(rules)) for each in arguments),
            "--secure-port=0",
            "--insecure-loopback-port=1",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert message.replace("RULES", str(rules)) in done.stderr
