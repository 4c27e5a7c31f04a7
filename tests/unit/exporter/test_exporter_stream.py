"""The stream: lines as documented, and subscribers that are let go when they fall behind."""

import asyncio
import json

import pytest

from gpuscale.exporter.subscribers import MAX_SUBSCRIBERS, QUEUED_LINES, Subscribers
from gpuscale.exposition.families import Family, Sample
from gpuscale.exposition.stream import (
    SeriesKey,
    StreamDecoder,
    StreamEncoder,
    StreamError,
    end_line,
)

LABELS = (("gpu", "0"),)


def families(**values):
    return [Family(name, "gauge", "", (Sample(LABELS, value),)) for name, value in values.items()]


def test_snapshot_has_every_series_with_its_value():
    encoder = StreamEncoder()
    encoder.advance(families(util=23, power=75.5), 1000)
    assert json.loads(encoder.snapshot()) == {
        "kind": "snapshot",
        "version": 1,
        "series": [[1, "util", {"gpu": "0"}, 23], [2, "power", {"gpu": "0"}, 75.5]],
        "ms": 1000,
    }


def test_change_tells_only_what_is_other_than_before():
    encoder = StreamEncoder()
    encoder.advance(families(util=23, power=75.5), 1000)
    line = encoder.advance(families(util=24, power=75.5), 1100)
    assert json.loads(line) == {"kind": "change", "values": {"1": 24}, "ms": 1100}


def test_new_and_vanished_series_are_told():
    encoder = StreamEncoder()
    encoder.advance(families(util=23), 1000)
    line = encoder.advance(families(power=70.0), 1100)
    assert json.loads(line) == {
        "kind": "change",
        "new": [[2, "power", {"gpu": "0"}, 70.0]],
        "gone": [1],
        "ms": 1100,
    }


def test_series_that_comes_back_gets_another_id():
    encoder = StreamEncoder()
    for values in ({"util": 23}, {}, {"util": 23}):
        encoder.advance(families(**values), 1000)
    assert json.loads(encoder.snapshot())["series"][0][0] == 2


def test_tick_without_a_change_is_a_heartbeat():
    encoder = StreamEncoder()
    encoder.advance(families(util=float("nan")), 1000)
    line = encoder.advance(families(util=float("nan")), 1100)
    assert json.loads(line) == {"kind": "heartbeat", "ms": 1100}


def test_failed_read_is_told_with_its_reason():
    encoder = StreamEncoder()
    encoder.advance(families(util=23), 1000)
    line = encoder.advance([], 1100, "driver not loaded")
    assert json.loads(line) == {
        "kind": "change",
        "gone": [1],
        "ms": 1100,
        "error": "driver not loaded",
    }


def test_decoder_follows_the_encoder():
    encoder, decoder = StreamEncoder(), StreamDecoder()
    encoder.advance(families(util=23, power=float("inf")), 1000)
    decoder.feed(encoder.snapshot())
    decoder.feed(encoder.advance(families(util=24, temp=40), 1100, "late"))
    assert decoder.series == {SeriesKey("util", LABELS): 24, SeriesKey("temp", LABELS): 40}
    assert (decoder.measured_ms, decoder.error) == (1100, "late")
    decoder.feed(end_line("too_slow"))
    assert decoder.ended == "too_slow"


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
        ([SNAPSHOT, b'{"kind":"heartbeat"}'], "ms: found None, expected a whole number"),
        (
            [SNAPSHOT, b'{"kind":"dance","ms":2}'],
            "found the kind 'dance', expected snapshot, change, heartbeat or end",
        ),
    ],
)
def test_broken_lines_are_told(lines, message):
    decoder = StreamDecoder()
    *good, bad = lines
    for line in good:
        decoder.feed(line)
    with pytest.raises(StreamError) as caught:
        decoder.feed(bad)
    assert str(caught.value) == message


async def test_subscriber_starts_with_a_snapshot_of_the_latest_tick():
    subscribers = Subscribers()
    subscriber = subscribers.join(families(util=23), 1000, None)
    subscribers.tell(families(util=24), 1100, None)
    assert json.loads(await subscriber.line())["series"] == [[1, "util", {"gpu": "0"}, 23]]
    assert json.loads(await subscriber.line())["values"] == {"1": 24}
    assert len(subscribers) == 1


async def test_second_subscriber_gets_the_same_ids():
    subscribers = Subscribers()
    subscribers.join(families(util=23), 1000, None)
    second = subscribers.join(families(util=23), 1000, None)
    subscribers.tell(families(util=24), 1100, None)
    assert json.loads(await second.line())["series"][0][:2] == [1, "util"]
    assert json.loads(await second.line())["values"] == {"1": 24}


async def test_slow_subscriber_is_let_go_and_the_others_are_not():
    subscribers = Subscribers()
    slow = subscribers.join(families(util=0), 0, None)
    quick = subscribers.join(families(util=0), 0, None)
    for tick in range(1, QUEUED_LINES + 1):
        await quick.line()
        subscribers.tell(families(util=tick), tick, None)
    assert json.loads(await slow.dismissed()) == {"kind": "end", "reason": "too_slow"}
    assert json.loads(await quick.line())["values"] == {"1": QUEUED_LINES}
    assert len(subscribers) == 1
    assert subscribers.dropped == {"too_slow": 1}


async def test_stopping_lets_everyone_go():
    subscribers = Subscribers()
    subscriber = subscribers.join([], 0, None)
    waiting = asyncio.create_task(subscriber.dismissed())
    await asyncio.sleep(0)
    subscribers.dismiss_all()
    assert json.loads(await waiting) == {"kind": "end", "reason": "stopping"}
    assert len(subscribers) == 0


async def test_too_many_subscribers_are_refused():
    subscribers = Subscribers()
    members = [subscribers.join([], 0, None) for _ in range(MAX_SUBSCRIBERS)]
    assert subscribers.join([], 0, None) is None
    subscribers.leave(members[0])
    assert subscribers.join([], 0, None) is not None
