"""What a faster rehearsal divides by its speed, and what refuses to be divided."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import UsageError
from gpuscale.lab.rehearse.manifests import hpa_manifests, job_manifest
from gpuscale.lab.rehearse.mark import RehearsalMark
from gpuscale.lab.rehearse.speed import check_speed, check_sync_period, hpa_flags, sped_up_manifest
from gpuscale.lab.scenarios import find_setup
from gpuscale.server.metricsapi.security import audit
from gpuscale.server.metricsapi.security.reviews import Attributes, User

MARK = RehearsalMark("r-1", "ns")
CONTROLLER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
URI = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/pods/%2A/m?labelSelector=app%3Dweb"


def test_the_controllers_flags_are_its_defaults_divided_by_the_speed() -> None:
    # Kubernetes' defaults are 15 s and 5 min.
    assert str(hpa_flags(find_setup("ack-bert").pipeline, 10)) == (
        "--horizontal-pod-autoscaler-sync-period=1.5s "
        "--horizontal-pod-autoscaler-downscale-stabilization=30s"
    )


def test_an_hpa_without_a_behavior_gets_none() -> None:
    (hpa,) = hpa_manifests(find_setup("ack-bert"), MARK, 10)
    assert "behavior" not in hpa["spec"]


def test_the_windows_and_periods_of_a_behavior_are_divided() -> None:
    (hpa,) = hpa_manifests(find_setup("ack-bert-quick"), MARK, 10)
    policy = {"type": "Percent", "value": 100, "periodSeconds": 30 // 10}
    down = hpa["spec"]["behavior"]["scaleDown"]
    assert (down["stabilizationWindowSeconds"], down["policies"]) == (40 // 10, [policy])
    assert hpa["spec"]["behavior"]["scaleUp"]["policies"] == [policy]


def test_the_times_of_jobs_and_deployments_are_divided() -> None:
    setup = find_setup("aks-mnist-jobs")
    (job,) = (each for each in setup.manifests if each["kind"] == "Job")
    spec = job["spec"]
    assert isinstance(spec, dict)
    spec |= {"activeDeadlineSeconds": 600, "ttlSecondsAfterFinished": 0}
    made = job_manifest(setup.jobs[0], setup, MARK, 10)["spec"]
    assert (made["activeDeadlineSeconds"], made["ttlSecondsAfterFinished"]) == (60, 0)
    deployment = {"kind": "Deployment", "spec": {"minReadySeconds": 20}}
    assert sped_up_manifest(deployment, 10)["spec"]["minReadySeconds"] == 2


@pytest.mark.parametrize("name", ["ack-bert", "eks-vision", "aks-mnist-jobs"])
def test_the_shipped_scenarios_and_their_quick_variants_run_ten_times_faster(name: str) -> None:
    check_speed(find_setup(name), 10)
    check_speed(find_setup(f"{name}-quick"), 10)


def test_all_that_would_be_part_of_a_second_is_refused_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        check_speed(find_setup("ack-bert-quick"), 7)
    hpa = "--speed 7: HorizontalPodAutoscaler/gpu-hpa spec.behavior"
    assert [line.partition(": found ")[0] for line in str(caught.value).split("\n")] == [
        f"{hpa}.scaleUp.policies.periodSeconds",
        f"{hpa}.scaleDown.policies.periodSeconds",
        f"{hpa}.scaleDown.stabilizationWindowSeconds",
    ]


def test_a_speed_that_a_control_plane_does_not_keep_up_with_is_refused() -> None:
    with pytest.raises(UsageError, match=r"every 0\.15 s.*which is --speed 30"):
        check_speed(find_setup("ack-bert"), 100)
    check_speed(find_setup("ack-bert"), 30)
    check_speed(replace(find_setup("aks-mnist-jobs"), hpas=()), 100)  # no HPA looks at all


def look(at_s, user=CONTROLLER, uri=URI):
    request = audit.AuditedRequest(
        uri, Attributes("list", "/"), User(user), "127.0.0.1", "", "", 200, at_s, at_s + 0.01
    )
    return json.dumps(audit.event(request)) + "\n"


@pytest.fixture
def flags():
    return hpa_flags(find_setup("ack-bert").pipeline, 10)  # a look every 1.5 s


async def test_a_controller_that_looks_as_often_as_it_should_is_taken(
    tmp_path: Path, flags
) -> None:
    log = tmp_path / "audit.log"
    log.write_text(look(100.0) + look(100.3, uri="/other") + look(101.6) + '{"half')
    await check_sync_period(log, flags, ManualClock())


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        pytest.param("", "none twice in 11 s", id="no look"),
        pytest.param(look(100.0), "none twice in 11 s", id="one look"),
        pytest.param(look(100.0) + look(115.0), "one every 15.0 s", id="Kubernetes' default"),
        pytest.param(
            "".join(look(100 + n / 5) for n in range(4)), "one every 0.2 s", id="more often"
        ),
        pytest.param(
            look(100.0, "kubernetes-admin") + look(101.5, "kubernetes-admin"),
            "none twice in 11 s",
            id="somebody else",
        ),
    ],
)
async def test_another_period_is_refused_with_the_flags_to_give(
    tmp_path: Path, flags, text, seen: str
) -> None:
    log = tmp_path / "audit.log"
    log.write_text(text)
    with pytest.raises(UsageError) as caught:
        await check_sync_period(log, flags, ManualClock())
    assert f"found {seen}, expected one every 1.5 s" in str(caught.value)
    assert "--horizontal-pod-autoscaler-sync-period=1.5s" in str(caught.value)
