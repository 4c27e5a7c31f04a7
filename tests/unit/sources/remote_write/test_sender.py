"""Remote write to a receiver that decodes with the protobuf library, and to one that has troubles."""

import asyncio
import base64
import math
import struct
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from yarl import URL

from gpuscale.base.clock import ManualClock
from gpuscale.series.remote_write.relabelling import RelabelRule
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.sources.remote_write.sender import RemoteWriter, _pause_s
from gpuscale.server.sources.remote_write.settings import RemoteWriteEndpoint

NOW_MS = 1_700_000_000_000


@asynccontextmanager
async def writing(receiver, store, **settings):
    settings = {"min_backoff_s": 0.001, "max_backoff_s": 0.01, **settings}
    writer = RemoteWriter(store, RemoteWriteEndpoint(receiver.url, **settings), ManualClock(NOW_MS))
    try:
        yield writer
    finally:
        await writer.close()


def bits(value):
    return struct.pack("<d", value)


async def test_what_arrives_is_what_was_stored_bit_by_bit(receiver) -> None:
    store = SeriesStore()
    first = store.ref({"__name__": "x", "Upper": "1", "low": 'ü"\n'})
    second = store.ref({"__name__": "y"})
    for step, value in enumerate((1.5, -0.0, math.nan, math.inf, 5e-324)):
        store.append_many([first, second], [value, step], NOW_MS + step)
    store.mark_stale(first, NOW_MS + 9)
    async with writing(receiver, store) as writer:
        await writer.send_new()
        labels = (("Upper", "1"), ("__name__", "x"), ("low", 'ü"\n'))
        times, values = zip(*receiver.samples[labels], strict=True)
        assert times == (*range(NOW_MS, NOW_MS + 5), NOW_MS + 9)
        assert [bits(value) for value in values[:5]] == [
            bits(value) for value in (1.5, -0.0, math.nan, math.inf, 5e-324)
        ]
        # Prometheus' own marker of an end, value.StaleNaN.
        assert bits(values[5]) == struct.pack("<Q", 0x7FF0000000000002)
        assert receiver.samples[(("__name__", "y"),)] == [(NOW_MS + n, n) for n in range(5)]
        assert (writer.state.sent, writer.state.pending) == (11, 0)
        assert writer.state.newest_ms == NOW_MS + 9
    (request,) = receiver.requests
    assert request.headers["X-Prometheus-Remote-Write-Version"] == "0.1.0"
    assert request.headers["Content-Encoding"] == "snappy"
    assert request.headers["Content-Type"] == "application/x-protobuf"


async def test_each_sample_is_sent_once(receiver) -> None:
    store = SeriesStore()
    async with writing(receiver, store) as writer:
        for step in range(5):
            store.append({"__name__": "x"}, NOW_MS + step, step)
            await writer.send_new()
        await writer.send_new()
    assert receiver.samples[(("__name__", "x"),)] == [(NOW_MS + n, n) for n in range(5)]
    assert len(receiver.requests) == 5


async def test_what_is_there_before_is_not_sent(receiver) -> None:
    store = SeriesStore()
    store.append({"__name__": "x"}, NOW_MS, 1)
    async with writing(receiver, store) as writer:
        writer.skip()
        store.append({"__name__": "x"}, NOW_MS + 1, 2)
        await writer.send_new()
    assert receiver.samples[(("__name__", "x"),)] == [(NOW_MS + 1, 2)]


async def test_requests_have_a_size_and_series_their_order(receiver) -> None:
    store = SeriesStore()
    refs = [store.ref({"__name__": "x", "i": str(i)}) for i in range(30)]
    for step in range(5):
        store.append_many(refs, [step] * 30, NOW_MS + step)
    for step in range(5, 25):
        store.append_many(refs[:2], [step] * 2, NOW_MS + step)
    receiver.delay_s = 0.002
    async with writing(receiver, store, max_samples=10, requests=3) as writer:
        await writer.send_new()
    assert all(count <= 10 for count in receiver.counts)
    assert 1 < receiver.most_at_once <= 3
    for i in range(30):
        found = receiver.samples[(("__name__", "x"), ("i", str(i)))]
        assert found == [(NOW_MS + n, n) for n in range(25 if i < 2 else 5)]


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_troubles_that_pass_cost_nothing(receiver, status: int) -> None:
    store = SeriesStore()
    store.append({"__name__": "x"}, NOW_MS, 1)
    receiver.answers = [(status, {}, "busy"), (status, {"Retry-After": "0"}, "busy")]
    async with writing(receiver, store) as writer:
        await writer.send_new()
        assert (writer.state.sent, writer.state.failed, writer.state.retried) == (1, 0, 2)
        assert writer.state.fault is None
    assert receiver.samples[(("__name__", "x"),)] == [(NOW_MS, 1)]
    assert [each.headers.get("Retry-Attempt") for each in receiver.requests] == [None, "1", "2"]


@pytest.mark.parametrize(
    ("status", "settings"), [(400, {}), (404, {}), (429, {"retries_429": False})]
)
async def test_a_refusal_for_good_is_counted_and_passed_over(
    receiver, status: int, settings, caplog: pytest.LogCaptureFixture
) -> None:
    store = SeriesStore()
    store.append({"__name__": "x"}, NOW_MS, 1)
    receiver.answers = [(status, {}, "out of order sample\nmore")]
    async with writing(receiver, store, **settings) as writer:
        await writer.send_new()
        assert (writer.state.sent, writer.state.failed) == (0, 1)
        assert writer.state.fault == f"answered {status}: out of order sample"
        store.append({"__name__": "x"}, NOW_MS + 1, 2)
        await writer.send_new()
        assert (writer.state.sent, writer.state.fault) == (1, None)
    assert receiver.samples[(("__name__", "x"),)] == [(NOW_MS + 1, 2)]
    assert caplog.text.count("does not take samples") == 1


async def test_an_outage_holds_no_more_than_the_requests_under_way(receiver) -> None:
    store = SeriesStore()
    refs = [store.ref({"__name__": "x", "i": str(i)}) for i in range(100)]
    receiver.answers = [(503, {}, "away")] * 50
    async with writing(receiver, store, max_samples=10, requests=2, max_backoff_s=0.005) as writer:
        sending = asyncio.create_task(writer.send_new())
        largest = 0
        for step in range(60):
            store.append_many(refs, [step] * 100, NOW_MS + step * 1000)
            await asyncio.sleep(0.005)
            largest = max(largest, writer.state.pending)
        await sending
        await writer.send_new()
        # Two under way, and one that waits for its turn.
        assert largest <= 2 * 10
        assert writer.state.sent == 6_000
    for i in range(100):
        found = receiver.samples[(("__name__", "x"), ("i", str(i)))]
        assert found == [(NOW_MS + n * 1000, n) for n in range(60)]


async def test_a_receiver_that_is_not_there(receiver, unused_tcp_port) -> None:
    store = SeriesStore()
    store.append({"__name__": "x"}, NOW_MS, 1)
    url = receiver.url
    receiver.url = f"http://127.0.0.1:{unused_tcp_port}/api/v1/write"
    async with writing(receiver, store) as writer:
        sending = asyncio.create_task(writer.send_new())
        while writer.state.fault is None:  # noqa: ASYNC110 - the state has no event
            await asyncio.sleep(0.001)
        assert "connection refused" in writer.state.fault
        writer._url = URL(url)
        await sending
    assert receiver.samples[(("__name__", "x"),)] == [(NOW_MS, 1)]


async def test_the_end_sends_the_rest(receiver) -> None:
    store = SeriesStore()
    async with writing(receiver, store, interval_s=3600) as writer:
        running = asyncio.create_task(writer.run())
        await asyncio.sleep(0)
        store.append({"__name__": "x"}, NOW_MS, 1)
        running.cancel()
    assert receiver.samples[(("__name__", "x"),)] == [(NOW_MS, 1)]


async def test_the_end_does_not_wait_for_ever(receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuscale.server.sources.remote_write import sender

    monkeypatch.setattr(sender, "_FLUSH_S", 0.05)
    store = SeriesStore()
    store.append({"__name__": "x"}, NOW_MS, 1)
    receiver.hold = asyncio.Event()
    async with writing(receiver, store) as writer:
        pass
    assert writer.state.dropped["shutdown"] == 1


async def test_labels_are_added_and_changed_on_the_way(receiver) -> None:
    store = SeriesStore()
    store.append({"__name__": "x", "cluster": "own", "secret": "1"}, NOW_MS, 1)
    store.append({"__name__": "x"}, NOW_MS, 2)
    store.append({"__name__": "y"}, NOW_MS, 3)
    rules = (
        RelabelRule("drop", ("__name__",), regex="y"),
        RelabelRule("labeldrop", regex="secret"),
    )
    external = (("cluster", "a"), ("zone", "b"))
    async with writing(receiver, store, external_labels=external, rules=rules) as writer:
        await writer.send_new()
        assert writer.state.dropped["dropped_series"] == 1
    assert dict(receiver.samples) == {
        (("__name__", "x"), ("cluster", "own"), ("zone", "b")): [(NOW_MS, 1)],
        (("__name__", "x"), ("cluster", "a"), ("zone", "b")): [(NOW_MS, 2)],
    }


async def test_samples_beyond_the_age_limit_are_dropped(receiver) -> None:
    store = SeriesStore()
    ref = store.ref({"__name__": "x"})
    for age_s in (61, 60, 1):
        store.append_ref(ref, NOW_MS - age_s * 1000, age_s, NOW_MS)
    async with writing(receiver, store, max_age_s=60) as writer:
        await writer.send_new()
        assert writer.state.dropped["too_old"] == 1
    assert receiver.samples[(("__name__", "x"),)] == [(NOW_MS - 60_000, 60), (NOW_MS - 1000, 1)]


async def test_credentials_come_from_files(receiver, tmp_path: Path) -> None:
    store = SeriesStore()
    store.append({"__name__": "x"}, NOW_MS, 1)
    (tmp_path / "password").write_text("secret\n")
    settings = {"username": "me", "password_file": tmp_path / "password"}
    async with writing(receiver, store, headers=(("X-Scope-OrgID", "a"),), **settings) as writer:
        await writer.send_new()
    headers = receiver.requests[0].headers
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"me:secret"
    assert headers["X-Scope-OrgID"] == "a"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("7", 7),
        ("-7", 0),
        ("100000", 300),
        ("soon", 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2015 07:28:00", 0),
    ],
)
def test_retry_after(text: str | None, seconds: int) -> None:
    assert _pause_s(text) == seconds


def test_retry_after_a_date() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 90 < _pause_s(date) <= 100
