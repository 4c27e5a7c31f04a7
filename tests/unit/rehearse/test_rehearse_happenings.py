"""Kubernetes' events in a run's log."""

from gpuscale.rehearse.happenings import Happenings
from gpuscale.sim.events import Event

RESCALE = "New size: {}; reason: pods metric gpu_util above target"


def body(uid, reason, message, *, kind="HorizontalPodAutoscaler", name="h", level="Normal", **more):
    return {
        "metadata": {"uid": uid},
        "involvedObject": {"kind": kind, "name": name, "namespace": "ns"},
        "reason": reason,
        "message": message,
        "type": level,
        **more,
    }


def test_a_rescale_says_from_where_to_where() -> None:
    log = Happenings({"ns/h": 1})
    first = log.read(body("a", "SuccessfulRescale", RESCALE.format(2)), 10)
    second = log.read(body("b", "SuccessfulRescale", RESCALE.format(5)), 20)
    assert first == Event(
        10, "SuccessfulRescale", "HorizontalPodAutoscaler/h", RESCALE.format(2), 1, 2
    )
    assert (second.before, second.after) == (2, 5)


def test_an_event_that_happens_again_is_counted_and_told_again() -> None:
    log = Happenings({})
    made = body("a", "SuccessfulCreate", "Created pod: p", kind="ReplicaSet", count=1)
    assert log.read(made, 1) is not None
    assert log.read(made, 2) is None
    assert log.read({**made, "count": 2}, 3) is not None
    assert log.read({**made, "series": {"count": 3}}, 4) is not None


def test_a_warning_is_told_once_per_object_and_text() -> None:
    log = Happenings({})

    def warn(uid, name, message):
        return log.read(
            body(uid, "FailedScheduling", message, kind="Pod", name=name, level="Warning"), 1
        )

    assert warn("a", "p", "0/1 nodes") is not None
    assert warn("b", "p", "0/1 nodes") is None
    assert warn("c", "p", "0/2 nodes") is not None
    assert warn("d", "q", "0/1 nodes") is not None
