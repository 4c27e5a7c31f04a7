"""Remote write as to an Azure Monitor workspace: tokens of a metadata service, a Prometheus behind them."""

import asyncio
import logging
import time
from pathlib import Path

import pytest
import pytest_asyncio

from azure_gate import azure_gate
from gpuscale.base.clock import WallClock
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.sources.remote_write.file import read_file
from gpuscale.server.sources.remote_write.sender import RemoteWriter
from gpuscale.testing.prometheus import serve

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(180)]


@pytest.fixture
def prometheus(tmp_path: Path):
    with serve([], tmp_path) as found:
        yield found


@pytest_asyncio.fixture
async def azure(prometheus, monkeypatch: pytest.MonkeyPatch):
    async with azure_gate(prometheus.url) as found:
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", found.url)
        yield found


@pytest.fixture
def store() -> SeriesStore:
    return SeriesStore()


@pytest_asyncio.fixture
async def writer(azure, store, tmp_path: Path):
    path = tmp_path / "remote-write.yaml"
    path.write_text(f"""
remote_write:
  - url: {azure.write_url}
    azuread: {{cloud: AzurePublic, managed_identity: {{}}}}
    queue_config: {{min_backoff: 10ms, max_backoff: 50ms}}
""")
    (endpoint,) = read_file(path)
    found = RemoteWriter(store, endpoint, WallClock())
    yield found
    await found.close()


async def value(prometheus, query: str, at_s: float):
    answer = await asyncio.to_thread(prometheus.get, "/api/v1/query", query=query, time=at_s)
    return {
        each["metric"]["containerName"]: float(each["value"][1])
        for each in answer["data"]["result"]
    }


async def test_samples_arrive_with_tokens_that_are_kept_and_renewed(
    azure, store, writer, prometheus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    now_ms = time.time_ns() // 1_000_000 - 10_000
    for step in range(3):
        labels = {"__name__": "containerGpuDutyCycle", "containerName": "uid/main"}
        store.append(labels, now_ms + step * 1000, 40 + step)
        await writer.send_new()
    assert (writer.state.sent, azure.issued, azure.refused) == (3, ["secret-0"], 0)
    # The token is revoked: the next request is refused once, and goes with another.
    azure.revoked.add("secret-0")
    store.append(labels, now_ms + 3000, 43)
    await writer.send_new()
    assert (writer.state.sent, writer.state.failed, writer.state.fault) == (4, 0, None)
    assert (azure.issued, azure.refused) == (["secret-0", "secret-1"], 1)
    at_s = now_ms / 1000 + 4
    assert await value(prometheus, "containerGpuDutyCycle", at_s) == {"uid/main": 43}
    assert await value(prometheus, "count_over_time(containerGpuDutyCycle[1m])", at_s) == {
        "uid/main": 4
    }
    assert "secret-" not in caplog.text


async def test_a_role_that_is_missing_is_told(azure, store, writer) -> None:
    azure.has_role = False
    store.append({"__name__": "x"}, time.time_ns() // 1_000_000, 1)
    await writer.send_new()
    assert writer.state.fault == "answered 403: Monitoring Metrics Publisher is not assigned"
    assert (writer.state.sent, writer.state.failed) == (0, 1)


async def test_no_token_is_an_outage_and_loses_nothing(
    azure, store, writer, prometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuscale.server.sources.http.entra._RETRY_S", 0.2)
    azure.is_away = True
    now_ms = time.time_ns() // 1_000_000
    store.append({"__name__": "x", "containerName": "a"}, now_ms, 7)
    sending = asyncio.create_task(writer.send_new())
    async with asyncio.timeout(30):
        while writer.state.fault is None or writer.state.retried < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert "/metadata/identity/oauth2/token: answered 400, invalid_request" in writer.state.fault
    azure.is_away = False
    await sending
    assert (writer.state.sent, writer.state.fault) == (1, None)
    assert await value(prometheus, "x", now_ms / 1000 + 1) == {"a": 7}
