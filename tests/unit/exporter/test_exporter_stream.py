# mypy: disable-error-code="arg-type"
"""The stream: lines as documented, and subscribers that are let go when they fall behind."""

import asyncio
import json

import pytest

from gpuscale.agent.exporter.http.subscribers import MAX_SUBSCRIBERS, QUEUED_LINES, Subscribers
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.exposition.stream import (
    SeriesKey,
    StreamEncoder,
    StreamError,
    StreamReader,
    end_line,
)
from stream_picture import StreamPicture

LABELS = (("gpu", "0"),)


def families(**values):
    return [Family(name, "gauge", "x", (Sample(LABELS, value),)) for name, value in values.items()]


def test_snapshot_has_every_series_with_its_value() -> None:
    encoder = StreamEncoder()
    encoder.advance(families(util=23, power=75.5), 1000)
    assert json.loads(encoder.snapshot()) == {
        "kind": "snapshot",
        "version": 1,
        "series": [[1, "util", {"gpu": "0"}, 23], [2, "power", {"gpu": "0"}, 75.5]],
        "families": {"util": ["gauge", "x"], "power": ["gauge", "x"]},
        "ms": 1000,
    }


def test_change_tells_only_what_is_other_than_before() -> None:
    encoder = StreamEncoder()
    encoder.advance(families(util=23, power=75.5), 1000)
    line = encoder.advance(families(util=24, power=75.5), 1100)
    assert json.loads(line) == {"kind": "change", "values": {"1": 24}, "ms": 1100}


def test_new_and_vanished_series_are_reported() -> None:
    encoder = StreamEncoder()
    encoder.advance(families(util=23), 1000)
    line = encoder.advance(families(power=70.0), 1100)
    assert json.loads(line) == {
        "kind": "change",
        "new": [[2, "power", {"gpu": "0"}, 70.0]],
        "gone": [1],
        "families": {"power": ["gauge", "x"]},
        "ms": 1100,
    }


def test_what_families_mean_is_kept_up_and_bounded() -> None:
    encoder, decoder = StreamEncoder(), StreamPicture()
    encoder.advance(families(util=1), 1000)
    assert decoder.feed(encoder.snapshot()).is_described
    assert decoder.families == {"util": ("gauge", "x")}
    other = Family("util", "counter", "y", (Sample(LABELS, 1),))
    assert decoder.feed(encoder.advance([other], 1100)).is_described
    assert decoder.families == {"util": ("counter", "y")}
    assert encoder.advance([other], 1200) == b'{"kind":"heartbeat","ms":1200}\n'
    for i in range(3):
        flood = {"kind": "change", "ms": 1300, "families": {f"f{i}": ["gauge", "x" * 600_000]}}
        decoder.feed(json.dumps(flood).encode())
    assert list(decoder.families) == ["util", "f0"]


def test_series_that_comes_back_gets_another_id() -> None:
    encoder = StreamEncoder()
    for values in ({"util": 23}, {}, {"util": 23}):
        encoder.advance(families(**values), 1000)
    assert json.loads(encoder.snapshot())["series"][0][0] == 2


def test_tick_without_a_change_is_a_heartbeat() -> None:
    encoder = StreamEncoder()
    encoder.advance(families(util=float("nan")), 1000)
    line = encoder.advance(families(util=float("nan")), 1100)
    assert json.loads(line) == {"kind": "heartbeat", "ms": 1100}


def test_failed_read_is_told_with_its_reason() -> None:
    encoder = StreamEncoder()
    encoder.advance(families(util=23), 1000)
    line = encoder.advance([], 1100, "driver not loaded")
    assert json.loads(line) == {
        "kind": "change",
        "gone": [1],
        "ms": 1100,
        "error": "driver not loaded",
    }


def test_decoder_follows_the_encoder() -> None:
    encoder, decoder = StreamEncoder(), StreamPicture()
    encoder.advance(families(util=23, power=float("inf")), 1000)
    decoder.feed(encoder.snapshot())
    decoder.feed(encoder.advance(families(util=24, temp=40), 1100, "late"))
    assert decoder.values == {SeriesKey("util", LABELS): 24, SeriesKey("temp", LABELS): 40}
    assert (decoder.measured_ms, decoder.error) == (1100, "late")
    decoder.feed(end_line("too_slow"))
    assert decoder.ended == "too_slow"


def test_what_is_not_wanted_has_no_handle_but_still_counts() -> None:
    reader = StreamReader(lambda name, labels: name if name == "util" else None)
    encoder = StreamEncoder()
    encoder.advance(families(util=23, temp=40), 1000)
    found = reader.feed(encoder.snapshot())
    assert (found.touched, found.values) == (["util"], [23])
    assert (reader.series, reader.unwanted) == (["util"], 1)
    found = reader.feed(encoder.advance(families(util=24, temp=41), 1100))
    assert (found.touched, found.values) == (["util"], [24])
    found = reader.feed(encoder.advance(families(temp=41), 1200))
    assert (found.touched, found.gone, reader.series) == ([], ["util"], [])


def test_series_go_on_over_connections_until_the_snapshot() -> None:
    reader = StreamReader(lambda name, labels: name)
    encoder = StreamEncoder()
    encoder.advance(families(util=23, temp=40), 1000)
    reader.feed(encoder.snapshot())
    reader.restart()
    assert (reader.measured_ms, reader.series) == (None, ["util", "temp"])
    broken = {"kind": "snapshot", "version": 1, "ms": 2, "series": [[1, "util", {}, 1], [2]]}
    with pytest.raises(StreamError):
        reader.feed(json.dumps(broken).encode())
    # Whoever gives up on the agent has to end these.
    assert reader.series == ["util", "temp"]
    other = {"kind": "snapshot", "version": 1, "ms": 2, "series": [[1, "temp", {}, 1]]}
    assert reader.feed(json.dumps(other).encode()).gone == ["util"]
    assert reader.clear() == ["temp"]


SNAPSHOT = b'{"kind":"snapshot","version":1,"ms":1,"series":[[1,"a",{},2]]}'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([b"["], "found b'[', expected a line of JSON"),
        ([b"[]"], "found [], expected a JSON object"),
        ([b'{"kind":"heartbeat","ms":1}'], "found 'heartbeat' first, expected a snapshot"),
        (
            [SNAPSHOT.replace(b'"version":1', b'"version":2')],
            "found stream version 2, expected 1",
        ),
        (
            [SNAPSHOT, b'{"kind":"change","ms":2,"values":{"7":1}}'],
            "values: found the id '7', which stands for nothing",
        ),
        (
            [SNAPSHOT, b'{"kind":"change","ms":2,"values":{"1":"x"}}'],
            "found the value 'x', expected a number",
        ),
        (
            [SNAPSHOT, b'{"kind":"change","ms":2,"new":[[1,"b",{},2]]}'],
            "series: found [1, 'b', {}, 2] twice",
        ),
        (
            [SNAPSHOT, b'{"kind":"change","ms":2,"new":[[2,"b"]]}'],
            "series: found [2, 'b'], expected [id, name, labels, value]",
        ),
        (
            [SNAPSHOT, b'{"kind":"change","ms":2,"families":[]}'],
            "families: found [], expected a mapping",
        ),
        (
            [SNAPSHOT, b'{"kind":"change","ms":2,"families":{"a":"gauge"}}'],
            "families: found 'gauge', expected [type, help]",
        ),
        ([SNAPSHOT, b'{"kind":"heartbeat"}'], "ms: found None, expected a whole number"),
        (
            [SNAPSHOT, b'{"kind":"dance","ms":2}'],
            "found the kind 'dance', expected snapshot, change, heartbeat or end",
        ),
    ],
)
def test_broken_lines_are_reported(lines, message: str) -> None:
    decoder = StreamPicture()
    *good, bad = lines
    for line in good:
        decoder.feed(line)
    with pytest.raises(StreamError) as caught:
        decoder.feed(bad)
    assert str(caught.value) == message


async def test_subscriber_starts_with_a_snapshot_of_the_latest_tick() -> None:
    subscribers = Subscribers()
    subscriber = subscribers.join(families(util=23), 1000, None)
    subscribers.publish(families(util=24), 1100, None)
    assert json.loads(await subscriber.line())["series"] == [[1, "util", {"gpu": "0"}, 23]]
    assert json.loads(await subscriber.line())["values"] == {"1": 24}
    assert len(subscribers) == 1


async def test_second_subscriber_gets_the_same_ids() -> None:
    subscribers = Subscribers()
    subscribers.join(families(util=23), 1000, None)
    second = subscribers.join(families(util=23), 1000, None)
    subscribers.publish(families(util=24), 1100, None)
    assert json.loads(await second.line())["series"][0][:2] == [1, "util"]
    assert json.loads(await second.line())["values"] == {"1": 24}


async def test_slow_subscriber_is_let_go_and_the_others_are_not() -> None:
    subscribers = Subscribers()
    slow = subscribers.join(families(util=0), 0, None)
    quick = subscribers.join(families(util=0), 0, None)
    for tick in range(1, QUEUED_LINES + 1):
        await quick.line()
        subscribers.publish(families(util=tick), tick, None)
    assert json.loads(await slow.dismissed()) == {"kind": "end", "reason": "too_slow"}
    assert json.loads(await quick.line())["values"] == {"1": QUEUED_LINES}
    assert len(subscribers) == 1
    assert subscribers.dropped == {"too_slow": 1}


async def test_stopping_lets_everyone_go() -> None:
    subscribers = Subscribers()
    subscriber = subscribers.join([], 0, None)
    waiting = asyncio.create_task(subscriber.dismissed())
    await asyncio.sleep(0)
    subscribers.dismiss_all()
    assert json.loads(await waiting) == {"kind": "end", "reason": "stopping"}
    assert len(subscribers) == 0


async def test_too_many_subscribers_are_refused() -> None:
    subscribers = Subscribers()
    members = [subscribers.join([], 0, None) for _ in range(MAX_SUBSCRIBERS)]
    assert subscribers.join([], 0, None) is None
    subscribers.leave(members[0])
    assert subscribers.join([], 0, None) is not None
