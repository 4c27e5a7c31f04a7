# mypy: disable-error-code="arg-type"
"""What was seen of a chain under load becomes the times of its hops, and names the one that is stuck."""

from dataclasses import replace

import pytest

from gpuscale.base.documents.documents import Document
from gpuscale.base.errors import UsageError
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.objects.manifests import read_manifest
from gpuscale.ops.doctor.pulse.hops import (
    HOPS,
    HopTime,
    LoadCount,
    PodStage,
    Pulse,
    PulseHop,
    PulseObserver,
    PulseSight,
)
from gpuscale.ops.doctor.pulse.report import fix_for, pulse_document, pulse_lines
from gpuscale.ops.doctor.pulse.sights import devices_of
from gpuscale.ops.doctor.pulse.watch import choose
from gpuscale.ops.doctor.snapshot import AgentLook, HpaLook, Snapshot

START_MS = 10_000
QUIET = PulseSight(START_MS, 20.0, {"gpu_util": 20.0}, 1, {"old": PodStage.READY})
BUSY = replace(QUIET, gpu_percent=90.0)
SERVED = replace(BUSY, values={"gpu_util": 90.0})
WANTED = replace(SERVED, wanted=2)
CREATED = replace(WANTED, pods={"old": PodStage.READY, "new": PodStage.CREATED})
SCHEDULED = replace(WANTED, pods={"old": PodStage.READY, "new": PodStage.SCHEDULED})
READY = replace(WANTED, pods={"old": PodStage.READY, "new": PodStage.READY})


def times(*sights, before=(QUIET,), targets=None):
    """Return the seconds of each hop where there is one sight a second."""
    observer = PulseObserver(before, {"gpu_util": 60.0} if targets is None else targets)
    for second, sight in enumerate(sights, 1):
        observer.see(replace(sight, at_ms=START_MS + second * 1000))
    found = observer.times(START_MS)
    assert [each.hop for each in found] == list(HOPS)
    return [None if each.after_ms is None else each.after_ms / 1000 for each in found]


def test_each_hop_is_timed_at_its_first_change() -> None:
    chain = (QUIET, BUSY, SERVED, WANTED, CREATED, SCHEDULED, READY)
    assert times(*chain) == [2, 3, 4, 5, 6, 7]


def test_what_moved_stays_moved() -> None:
    assert times(WANTED, QUIET, QUIET) == [1, 1, 1, None, None, None]


def test_hops_between_two_looks_have_the_same_time() -> None:
    assert times(QUIET, READY) == [2] * 6


@pytest.mark.parametrize(
    ("sight", "moved"),
    [
        pytest.param(replace(QUIET, gpu_percent=25.0), 0, id="five points are no rise"),
        pytest.param(replace(QUIET, gpu_percent=25.1), 1, id="more than five points are"),
        # 5 % of the target of 60 are 3.
        pytest.param(replace(BUSY, values={"gpu_util": 23.0}), 1, id="five percent of the target"),
        pytest.param(replace(BUSY, values={"gpu_util": 23.1}), 2, id="more of it"),
        pytest.param(replace(QUIET, wanted=0, gpu_percent=0.0), 0, id="less is no rise"),
        pytest.param(PulseSight(START_MS), 0, id="what is absent has not moved"),
    ],
)
def test_what_counts_as_a_rise(sight, moved: int) -> None:
    assert sum(each is not None for each in times(sight)) == moved


def test_without_a_target_a_rise_is_of_the_value_itself() -> None:
    # 5 % of 20 is 1.
    assert times(replace(QUIET, values={"gpu_util": 21.0}), targets={})[1] is None
    assert times(replace(QUIET, values={"gpu_util": 21.1}), targets={})[1] == 1


def test_a_rise_is_over_the_highest_of_all_looks_before() -> None:
    before = (replace(QUIET, gpu_percent=80.0), QUIET)
    assert times(replace(QUIET, gpu_percent=84.0), before=before)[0] is None


def test_what_was_absent_before_the_load_is_never_a_rise() -> None:
    assert times(SERVED, before=(PulseSight(START_MS, wanted=1, pods=QUIET.pods),)) == [None] * 6


def test_a_pod_of_before_is_no_new_one() -> None:
    before = (replace(QUIET, pods={"old": PodStage.CREATED}),)
    assert times(QUIET, before=before) == [None] * 6


def pulse(*seconds, **more):
    hops = zip(HOPS, (*seconds, *[None] * (len(HOPS) - len(seconds))), strict=True)
    given = [HopTime(hop, None if at is None else at * 1000) for hop, at in hops]
    return Pulse("hpa/default/web", tuple(given), 500, **more)


@pytest.mark.parametrize(
    ("seconds", "stuck"),
    [
        ((), PulseHop.GPU),
        ((1, 2), PulseHop.HPA),
        ((1, 2, 3, 4, 5), PulseHop.READY),
        ((1, 2, 3, 4, 5, 6), None),
        # The agent could not be asked, and the load went past it all the same.
        ((None, 2), PulseHop.HPA),
        ((None, 2, 3, 4, 5, 6), None),
    ],
)
def test_stuck_is_the_first_hop_after_all_that_moved(seconds, stuck) -> None:
    assert pulse(*seconds).stuck is stuck


def test_the_waterfall_shows_each_hop_where_its_time_was() -> None:
    # 40 columns for 20 s: two for each second.
    found = pulse(1, 5, 10, 10, 12, 20, load=LoadCount(7, 1, "status 503"))
    rows = [
        ("", "at", "took", "", 0),
        ("GPU at agent", "1.0", "+1.0", "##", 0),
        ("value served", "5.0", "+4.0", "########", 2),
        ("HPA wants more", "10.0", "+5.0", "##########", 10),
        ("pod created", "10.0", "+0.0", "#", 20),
        ("pod scheduled", "12.0", "+2.0", "####", 20),
        ("pod ready", "20.0", "+8.0", "################", 24),
    ]
    assert list(pulse_lines(found)) == [
        "hpa/default/web: seconds since the first request, to within 0.5 s or so",
        *(
            f"  {hop:14} {at:>7} {took:>7}  {' ' * skipped}{bar}".rstrip()
            for hop, at, took, bar, skipped in rows
        ),
        "load: 7 requests answered, 1 failed",
        "all hops moved",
    ]


def test_a_waterfall_that_is_stuck_says_where_why_and_what_to_do() -> None:
    lines = list(pulse_lines(pulse(None, 5, fault="at its target", fix="Send more load.")))
    assert lines[0].endswith("seconds since the first change, to within 0.5 s or so")
    assert lines[2].split() == ["GPU", "at", "agent", "-", "-", "not", "seen"]
    assert lines[-3:] == ["stuck at: HPA wants more", "  | at its target", "  -> Send more load."]


def test_nothing_that_moved_at_once_breaks_no_bar() -> None:
    row = list(pulse_lines(pulse(0)))[2]
    assert row.split() == ["GPU", "at", "agent", "0.0", "+0.0", "#"]


def test_the_document_has_seconds_and_nulls() -> None:
    found = pulse_document(pulse(None, 5, 7, fault="why", fix="how", load=LoadCount(3)))
    assert found["hops"][:4] == [
        {"hop": "gpu", "after_s": None, "took_s": None},
        {"hop": "value", "after_s": 5.0, "took_s": 5.0},
        {"hop": "hpa", "after_s": 7.0, "took_s": 2.0},
        {"hop": "created", "after_s": None, "took_s": None},
    ]
    assert (found["through"], found["stuck"]) == (False, "created")
    assert (found["evidence"], found["fix"]) == ("why", "how")
    assert found["load"] == {"answered": 3, "failed": 0}
    assert pulse_document(pulse(1, 2, 3, 4, 5, 6))["load"] is None


def look(name, *, kind="Pods", selector="app=web"):
    target = {"type": "AverageValue", "averageValue": "60"}
    metric = {"type": "Pods", "pods": {"metric": {"name": "gpu_util"}, "target": target}}
    if kind == "Resource":
        cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
        metric = {"type": "Resource", "resource": cpu}
    body = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 3,
            "metrics": [metric],
        },
    }
    return HpaLook(read_manifest(Document("test", 0, body, {})), body, selector)


def test_the_only_hpa_that_can_be_meant_is_chosen() -> None:
    seen = Snapshot(0, hpas=[look("web"), look("cpu", kind="Resource")])
    assert choose(seen, None).about == "hpa/default/web"
    seen = Snapshot(0, hpas=[look("web"), look("batch")])
    assert choose(seen, "default/batch").about == "hpa/default/batch"


@pytest.mark.parametrize(
    ("hpas", "wanted", "told"),
    [
        ([], None, "found: none in this cluster"),
        (["web", "batch"], None, "found: default/web, default/batch; choose with --pulse-hpa"),
        (["web"], "default/gone", "found 'default/gone', expected an HPA"),
    ],
)
def test_what_can_not_be_chosen_is_refused(hpas, wanted: str | None, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        choose(Snapshot(0, hpas=[look(name) for name in hpas]), wanted)


def test_an_hpa_without_a_target_is_refused() -> None:
    seen = Snapshot(0, hpas=[replace(look("web", selector=""), target_fault="404")])
    with pytest.raises(UsageError, match=r"hpa/default/web: expected a target with pods.*: 404"):
        choose(seen, None)


@pytest.mark.parametrize("hop", HOPS)
def test_each_hop_that_is_stuck_has_a_fix_with_a_command(hop) -> None:
    assert "kubectl " in fix_for(hop, look("web"))


def test_gpus_are_as_busy_as_their_utilization_says_and_instances_as_their_engine() -> None:
    pod = (("namespace", "ml"), ("pod", "model-1"))
    engine, utilization = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"
    families = {
        utilization: [Sample(pod, 40), Sample((("namespace", "ml"), ("pod", "other")), 99)],
        # Of the whole GPU it still tells of a load that has gone.
        engine: [Sample(pod, 1.0), Sample((("GPU_I_ID", "7"), *pod), 0.25)],
    }
    look = AgentLook(
        "gpu-1",
        "gpuscale/agent",
        {name: Family(name, "gauge", "", tuple(samples)) for name, samples in families.items()},
    )
    ours = [each for each in devices_of([look]) if each.pod == "ml/model-1"]
    assert sorted(each.percent for each in ours) == [25, 40]
