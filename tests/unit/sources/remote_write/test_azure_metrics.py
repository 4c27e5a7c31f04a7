"""Custom metrics of Azure Monitor, sent to a stand-in that refuses what Azure documents to refuse."""

import json
import math
import re
import struct
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from gpuscale.base.clock import ManualClock, WallClock
from gpuscale.base.errors import ConfigError
from gpuscale.series.remote_write.azure_metrics import AzureMessage, AzureSeries
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.sources.remote_write.file import read_file
from gpuscale.server.sources.remote_write.sender import RemoteWriter

RESOURCE = (
    "/subscriptions/s-1/resourceGroups/ml/providers/"
    "Microsoft.ContainerService/managedClusters/training"
)
MINUTE_MS = 60_000
NAME = "containerGpuDutyCycle"


class Azure:
    """The metadata service and a region's endpoint; minutes are put together as Azure does."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.now_s = time.time
        self.sizes: list[int] = []
        self.refusals: list[str] = []
        self.minutes: dict[tuple[object, ...], list[float]] = {}

    async def token(self, request: web.Request) -> web.Response:
        # "Be sure to include the trailing slash."
        assert request.query["resource"] == "https://monitoring.azure.com/"
        ends_s = str(int(time.time()) + 3600)
        return web.json_response({"access_token": "open", "expires_on": ends_s})

    async def take(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer open":
            return web.Response(status=401, text="no valid token")
        if self.answers:
            status, headers = self.answers.pop(0)
            return web.Response(status=status, headers=headers, text="busy")
        body = await request.read()
        try:
            found = self._checked(request, body)
        except (ValueError, KeyError, AssertionError) as error:
            self.refusals.append(repr(error))
            return web.Response(status=400, text=repr(error))
        self.sizes.append(len(body))
        for key, (least, greatest, total, count) in found:
            known = self.minutes.setdefault(key, [math.inf, -math.inf, 0.0, 0])
            known[:] = [
                min(known[0], least),
                max(known[1], greatest),
                known[2] + total,
                known[3] + count,
            ]
        return web.json_response({"statusCode": 200})

    def _checked(self, request: web.Request, body: bytes):
        assert request.content_type in ("application/json", "application/x-ndjson")
        assert len(body) <= 4_000_000, "too large"
        found = []
        for line in body.split(b"\n"):
            metric = json.loads(line)
            at = datetime.fromisoformat(metric["time"])
            assert -1200 <= at.timestamp() - self.now_s() <= 300, "too old, or of the future"
            base = metric["data"]["baseData"]
            names = base["dimNames"]
            assert len(names) <= 10, "more than ten dimensions"
            for series in base["series"]:
                values = series["dimValues"]
                assert len(names) == len(values), "names and values differ in number"
                for text in (base["metric"], base["namespace"], *names, *values):
                    assert 1 <= len(text) <= 256, "a text of a wrong length"
                four = [series[name] for name in ("min", "max", "sum", "count")]
                assert all(isinstance(each, int | float) for each in four)
                assert isinstance(four[3], int)
                assert four[3] >= 1
                assert four[0] <= four[1]
                key = (
                    base["namespace"],
                    base["metric"],
                    metric["time"],
                    *zip(names, values, strict=True),
                )
                found.append((key, four))
        return found


@pytest_asyncio.fixture
async def azure(monkeypatch: pytest.MonkeyPatch):
    found = Azure()
    app = web.Application(client_max_size=8_000_000)
    app.router.add_get("/metadata/identity/oauth2/token", found.token)
    app.router.add_post(f"{RESOURCE}/metrics", found.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", found.url)
    yield found
    await runner.cleanup()


def entry(url: str, more: str = "") -> str:
    return f"""
azure_custom_metrics:
  - url: {url}
    resource_id: {RESOURCE}
    azuread: {{managed_identity: {{}}}}
{more}
"""


def read(tmp_path: Path, text: str):
    path = tmp_path / "remote-write.yaml"
    path.write_text(text)
    return read_file(path)


def writer_to(azure, store, tmp_path: Path, more: str = "", clock=None) -> RemoteWriter:
    (endpoint,) = read(tmp_path, entry(azure.url, more))
    return RemoteWriter(store, endpoint, clock or WallClock())


def series(container: str, **labels: str) -> dict[str, str]:
    return {"__name__": NAME, "containerName": container, "gpuId": "GPU-1", **labels}


async def test_minutes_arrive_with_least_greatest_sum_and_count(azure, tmp_path: Path) -> None:
    store = SeriesStore()
    writer = writer_to(azure, store, tmp_path)
    start_ms = time.time_ns() // 1_000_000 // MINUTE_MS * MINUTE_MS - 5 * MINUTE_MS
    expected: dict[tuple[str, int], list[float]] = defaultdict(list)
    # Four samples a minute; a look each 20 s, so minutes are sent in parts.
    for step in range(13):
        at_ms = start_ms + step * 15_000
        for number, name in enumerate(("uid-a/main", "uid-b/main")):
            value = float((7 * step + 31 * number) % 101)
            store.append(series(name, job="agents", instance="10.0.0.1:9400"), at_ms, value)
            expected[name, at_ms // MINUTE_MS * MINUTE_MS].append(value)
        if step % 3 == 2:
            await writer.send_new()
    await writer.close()
    assert azure.refusals == []
    found = {(dict(key[3:])["containerName"], key[2]): four for key, four in azure.minutes.items()}
    assert found == {
        (name, datetime.fromtimestamp(minute_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")): [
            min(values),
            max(values),
            sum(values),
            len(values),
        ]
        for (name, minute_ms), values in expected.items()
    }
    # What is no dimension, such as job and instance, is left out.
    assert {tuple(name for name, _ in key[3:]) for key in azure.minutes} == {
        ("containerName", "gpuId")
    }
    assert (writer.state.sent, writer.state.failed, writer.state.fault) == (26, 0, None)


async def test_what_azure_would_refuse_is_not_sent(azure, tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    store = SeriesStore()
    writer = writer_to(azure, store, tmp_path)
    store.append(series("good"), now_ms, 1.0)
    store.append(series("long" * 100), now_ms, 1.0)
    store.append(series("old"), now_ms - 20 * MINUTE_MS, 1.0)
    store.append(series("nan"), now_ms, math.nan)
    store.append(series("infinite"), now_ms, math.inf)
    store.append({**series("other"), "__name__": "DCGM_FI_DEV_GPU_UTIL"}, now_ms, 1.0)
    await writer.close()
    assert azure.refusals == []
    assert [dict(key[3:])["containerName"] for key in azure.minutes] == ["good"]
    assert writer.state.dropped == {"dropped_series": 2, "too_old": 1, "shutdown": 0}


async def test_more_than_a_request_takes_goes_in_several(azure, tmp_path: Path) -> None:
    """Dimensions of the greatest length, ten of them, more series than one request takes."""
    names = [f"d{number}" for number in range(10)]
    more = f"    dimensions: [{', '.join(names)}]"
    now_ms = time.time_ns() // 1_000_000
    store = SeriesStore()
    writer = writer_to(azure, store, tmp_path, more)
    for number in range(3000):
        labels = dict.fromkeys(names, f"{number:05}" + 'ü"' * 125)
        store.append({"__name__": NAME, **labels}, now_ms, float(number))
    await writer.close()
    assert azure.refusals == []
    assert len(azure.minutes) == 3000
    assert writer.state.sent == 3000
    assert len(azure.sizes) > 1
    assert max(azure.sizes) <= 4_000_000


async def test_throttling_waits_as_long_as_azure_says(
    azure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    store = SeriesStore()
    writer = writer_to(azure, store, tmp_path)
    store.append(series("a"), time.time_ns() // 1_000_000, 5.0)
    azure.answers = [(429, {"Retry-After": "37"}), (503, {})]
    monkeypatch.setattr("gpuscale.server.sources.remote_write.sender.asyncio.sleep", sleep)
    await writer.send_new()
    monkeypatch.undo()
    await writer.close()
    assert [each for each in pauses if each] == [37.0, pytest.approx(1.5, abs=0.5)]
    assert (writer.state.sent, writer.state.retried, writer.state.failed) == (1, 2, 0)


async def test_a_refusal_is_said_and_counted(azure, tmp_path: Path) -> None:
    """As while the identity has no role yet."""
    store = SeriesStore()
    writer = writer_to(azure, store, tmp_path)
    store.append(series("a"), time.time_ns() // 1_000_000, 5.0)
    azure.answers = [(403, {})]
    await writer.send_new()
    assert writer.state.fault == "answered 403: busy"
    assert (writer.state.sent, writer.state.failed) == (0, 1)
    await writer.close()


async def test_an_outage_of_half_an_hour_keeps_what_azure_still_takes(
    azure, tmp_path: Path
) -> None:
    store = SeriesStore()
    now_ms = time.time_ns() // 1_000_000
    clock = ManualClock(now_ms)
    writer = writer_to(azure, store, tmp_path, clock=clock)
    for minutes in range(30, -1, -1):
        store.append(series("a"), now_ms - minutes * MINUTE_MS, float(minutes))
    await writer.close()
    assert azure.refusals == []
    # A minute is left for the way there.
    assert sorted(four[0] for four in azure.minutes.values()) == [float(n) for n in range(20)]
    assert writer.state.dropped["too_old"] == 11


def test_a_sum_beyond_all_numbers_is_no_value() -> None:
    message = AzureMessage("gpuscale")
    rows = [struct.pack("<dd", 1e308, 1.0), struct.pack("<dd", 1e308, 1.0)]
    labels = [AzureSeries("m", ("a",), (name,)) for name in ("large", "small")]
    message.add(labels, [0, 1], rows)
    ((body, samples),) = message.bodies()
    (found,) = json.loads(body)["data"]["baseData"]["series"]
    assert (found["dimValues"], found["sum"], samples) == (["small"], 2.0, 2)


def test_the_address_is_the_regions(tmp_path: Path) -> None:
    text = entry("x").replace("url: x", "region: westeurope")
    (endpoint,) = read(tmp_path, text)
    assert endpoint.url == f"https://westeurope.monitoring.azure.com{RESOURCE}/metrics"
    assert endpoint.azure_login is not None
    assert endpoint.azure_login.scope == "https://monitoring.azure.com//.default"
    assert endpoint.interval_s == 60


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("url: https://x", "region: West Europe", "region"),
        ("url: https://x", "name: a", "found both or none of region and url"),
        ("url: https://x", "url: http://x", "expected one that begins with https://"),
        (RESOURCE, "/subscriptions/s-1", "resource_id"),
        (RESOURCE, "/subscriptions/s-1/resourceGroups/ml", "resource_id"),
        ("azuread:", "azure_ad:", "azure_ad"),
        ("url:", "dimensions: [a.b]\n    url:", "found a.b, expected names of labels"),
        ("url:", "dimensions: [a, a]\n    url:", "each once"),
        ("url:", f"dimensions: [{', '.join('abcdefghijk')}]\n    url:", "dimensions"),
        ("url:", "interval: 5\n    url:", "expected a duration"),
    ],
)
def test_what_can_not_be_used(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = entry("https://x")
    assert old in text
    with pytest.raises(ConfigError, match=re.escape(words)):
        read(tmp_path, text.replace(old, new))
