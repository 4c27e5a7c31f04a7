"""Metadata becomes a trigger once; each address has room for so many."""

import pytest

from answering import read_plainly
from gpuscale.server.scaler.known_triggers import (
    KnownTriggers,
    RefusedError,
    WatchedTriggers,
    polling_s,
)
from gpuscale.server.scaler.proto import externalscaler_pb2 as pb


def ref(namespace="ml", **metadata):
    return pb.ScaledObjectRef(name="so", namespace=namespace, scalerMetadata=metadata)


def trigger(number):
    return read_plainly({"workload": "w", "target": "1", "metricName": f"m{number}"}, "ml")


def test_equal_metadata_is_read_once() -> None:
    reads = []

    def read(metadata, namespace):
        reads.append(metadata)
        return read_plainly(metadata, namespace)

    known = KnownTriggers(read)
    first = known.trigger(ref(workload="w", target="2", scalerAddress="x:6000"))
    assert known.trigger(ref(workload="w", target="2", scalerAddress="x:6000")) is first
    assert len(reads) == 1
    assert known.trigger(ref("other", workload="w", target="2")).namespace == "other"


def test_every_fault_is_named_and_wrong_metadata_is_remembered_too() -> None:
    known = KnownTriggers(read_plainly)
    for _ in range(2):
        with pytest.raises(RefusedError) as caught:
            known.trigger(ref("", pollingInterval="soon"))
        assert caught.value.code == "INVALID_ARGUMENT"
        said = str(caught.value)
        assert all(key in said for key in ("workload", "target", "pollingInterval", "namespace"))


def test_huge_metadata_is_refused_before_it_is_read() -> None:
    def never(metadata, namespace):
        raise AssertionError

    with pytest.raises(RefusedError, match="expected at most 65536"):
        KnownTriggers(never).trigger(ref(query="x" * 65_537))


@pytest.mark.parametrize(("text", "seconds"), [("15", 15.0), ("2m", 120.0), ("1", 1.0)])
def test_a_polling_interval_is_seconds_or_a_duration(text, seconds) -> None:
    assert polling_s(ref(pollingInterval=text)) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5", "x", "9" * 400, "nan"])
def test_what_is_no_polling_interval_is_refused(text) -> None:
    with pytest.raises(RefusedError, match="pollingInterval"):
        polling_s(ref(pollingInterval=text))


def test_kedas_own_default_is_half_a_minute() -> None:
    assert polling_s(ref()) == 30.0


def test_an_address_has_its_room_and_leaves_others_theirs() -> None:
    watched = WatchedTriggers(most=5, most_of_address=3)
    for number in range(3):
        watched.use(trigger(number), "greedy", 0.0)
    with pytest.raises(RefusedError, match="--max-triggers-per-address"):
        watched.use(trigger(3), "greedy", 1.0)
    watched.use(trigger(0), "greedy", 1.0)  # those it has go on
    watched.use(trigger(3), "other", 1.0)
    watched.use(trigger(4), "other", 1.0)
    with pytest.raises(RefusedError, match=r"--max-triggers$"):
        watched.use(trigger(5), "third", 1.0)


def test_a_trigger_that_nobody_asks_for_makes_room_after_ten_minutes() -> None:
    watched = WatchedTriggers(most=2, most_of_address=2)
    watched.use(trigger(0), "a", 0.0)
    watched.use(trigger(1), "a", 0.0)
    watched.use(trigger(1), "a", 500.0)
    watched.use(trigger(2), "a", 601.0)
    assert len(watched) == 2
    with pytest.raises(RefusedError):
        watched.use(trigger(3), "a", 601.0)
