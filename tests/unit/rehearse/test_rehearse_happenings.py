"""Kubernetes' events in a run's log."""

from gpuscale.lab.rehearse.happenings import Happenings
from gpuscale.lab.sim.events import SimulationEvent

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
    log = Happenings({"HorizontalPodAutoscaler/ns/h": "ns/d"}, {"ns/d": 1})
    first = log.read(body("a", "SuccessfulRescale", RESCALE.format(2)), 10)
    second = log.read(body("b", "SuccessfulRescale", RESCALE.format(5)), 20)
    assert first == SimulationEvent(
        10, "SuccessfulRescale", "HorizontalPodAutoscaler/h", RESCALE.format(2), 1, 2
    )
    assert (second.before, second.after) == (2, 5)


def test_an_event_that_happens_again_is_counted_and_told_again() -> None:
    log = Happenings({}, {})
    made = body("a", "SuccessfulCreate", "Created pod: p", kind="ReplicaSet", count=1)
    assert log.read(made, 1) is not None
    assert log.read(made, 2) is None
    assert log.read({**made, "count": 2}, 3) is not None
    assert log.read({**made, "series": {"count": 3}}, 4) is not None


def test_a_warning_is_told_once_per_object_and_text() -> None:
    log = Happenings({}, {})

    def warn(uid, name, message):
        return log.read(
            body(uid, "FailedScheduling", message, kind="Pod", name=name, level="Warning"), 1
        )

    assert warn("a", "p", "0/1 nodes") is not None
    assert warn("b", "p", "0/1 nodes") is None
    assert warn("c", "p", "0/2 nodes") is not None
    assert warn("d", "q", "0/1 nodes") is not None


def test_kedas_steps_and_its_hpas_rescales_are_of_one_count() -> None:
    targets = {"HorizontalPodAutoscaler/ns/keda-hpa-s": "ns/d", "ScaledObject/ns/s": "ns/d"}
    log = Happenings(targets, {"ns/d": 0})
    about = {"kind": "ScaledObject", "name": "s"}

    def steps(*bodies):
        return [(event.before, event.after) for body in bodies if (event := log.read(body, 1))]

    woken = "Scaled apps/v1.Deployment ns/d from 0 to 1, triggered by s0-prometheus"
    asleep = "Deactivated apps/v1.Deployment ns/d from 5 to 0"
    assert steps(
        body("a", "KEDAScaleTargetActivated", woken, **about),
        body("b", "SuccessfulRescale", RESCALE.format(5), name="keda-hpa-s"),
        body("c", "KEDAScaleTargetDeactivated", asleep, **about),
        body("d", "KEDAScaleTargetActivated", woken, **about),
        body("e", "SuccessfulRescale", RESCALE.format(2), name="keda-hpa-s"),
    ) == [(0, 1), (1, 5), (5, 0), (0, 1), (1, 2)]
