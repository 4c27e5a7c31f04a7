# mypy: disable-error-code="arg-type"
"""What an HPA lacks is folded under what that HPA asks for: two causes stay two."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from clusters import (
    EXTERNAL,
    JOB,
    PROMETHEUS,
    api_service,
    both,
    cluster,
    hpa_body,
    look,
    pod,
    roots_of,
    workload,
)

from gpuscale.ops.doctor.diagnosis import diagnose

WRONG = {
    "hops": [
        {
            "hop": "query",
            "state": "failed",
            "said": "0 rows. The selector modelName=A100 leaves none of 1 series.",
            "fix": "Correct the metric's selector in the HPA.",
        }
    ]
}
ABSENT = {"hops": [{"hop": "series", "state": "failed", "said": "no series", "fix": "Scrape it."}]}


def external(name="a", metric="queue"):
    body = hpa_body(name)
    target = {"type": "AverageValue", "averageValue": "30"}
    body["spec"]["metrics"] = [
        {"type": "External", "external": {"metric": {"name": metric}, "target": target}}
    ]
    return look(body, values=(), fault="404", selector=f"app={name}")


def custom(name, explanation=None, metric="DCGM_FI_DEV_GPU_UTIL"):
    body = hpa_body(name, metric=metric)
    return look(body, values=(), selector=f"app={name}", explanation=explanation)


def causes(**changed):
    """The check and place of each cause, with the places of what is folded under it."""
    return {
        (root.check.id, root.where): {each.where for each in root.whole()} - {root.where}
        for root in diagnose(cluster(**changed)).findings
    }


def world(*hpas, **more):
    names = [each.hpa.metadata.name for each in hpas]
    others = [workload(name, gpus=1) for name in names if name != "web"]
    pods = [pod(f"{name}-1", labels={"app": name}, gpus=1) for name in names if name != "web"]
    given = {"deployments": both("deployments", *others), "pods": both("pods", *pods)}
    return causes(hpas=hpas, **{**given, **more})


def test_two_hpas_with_two_causes_show_two():
    found = world(external(), custom("b", WRONG))
    assert found == {
        ("no-metrics-api", "apiservice/external.metrics.k8s.io"): {"hpa/default/a"},
        ("no-value", "hpa/default/b"): set(),
    }


def test_two_metrics_of_one_hpa_have_each_its_own_cause():
    first, second = external("a"), custom("a", WRONG)
    both_metrics = replace(first, metrics=(*first.metrics, *second.metrics))
    found = world(both_metrics)
    assert found.keys() == {
        ("no-metrics-api", "apiservice/external.metrics.k8s.io"),
        ("no-value", "hpa/default/a"),
    }
    assert found["no-metrics-api", "apiservice/external.metrics.k8s.io"] == {"hpa/default/a"}


def test_the_series_of_a_dead_workload_are_not_the_cause_of_others():
    old = replace(
        PROMETHEUS,
        usage=(
            ({**JOB, "pod": "a-1", "namespace": "default"}, 600.0),
            ({**JOB, "pod": "web-1"}, 3.0),
        ),
    )
    found = world(custom("a", ABSENT), custom("b", ABSENT), prometheus=old)
    place = f"prometheus/{PROMETHEUS.address}"
    assert found == {("old-series", place): {"hpa/default/a"}, ("no-value", "hpa/default/b"): set()}


@pytest.mark.parametrize(
    "cause",
    [
        {"prometheus": replace(PROMETHEUS, usage=())},
        {"prometheus": replace(PROMETHEUS, targets=((JOB, 0.0),))},
        {"apiservices": [api_service(status="False"), api_service(EXTERNAL)]},
        {"apiservices": [api_service(EXTERNAL)]},
    ],
    ids=["no-series", "target-down", "api-unavailable", "no-metrics-api"],
)
def test_what_is_wrong_with_gpus_or_the_custom_group_is_behind_those_who_ask_for_it_alone(cause):
    found = world(
        external(),
        custom("b", ABSENT),
        **{"apiservices": [api_service(), api_service(EXTERNAL)], **cause},
    )
    assert ("no-value", "hpa/default/a") in found
    assert ("no-value", "hpa/default/b") not in found


def test_a_selector_that_takes_nothing_is_never_hidden():
    dead = {
        "prometheus": replace(PROMETHEUS, usage=()),
        "apiservices": [api_service(status="False")],
    }
    assert ("no-value", "hpa/default/b") in world(custom("b", WRONG), **dead)


def test_an_external_metric_that_nobody_serves_is_not_said_to_be_ours():
    (found,) = (each for each in roots_of(cluster(hpas=(external(),))).values())
    assert "external rule that gives queue" in found.fix.say
    assert found.fix.command.startswith("kubectl get hpa")


def test_nothing_follows_from_what_is_only_noted():
    """The controller finds a target of an old version, so that this is not why a value is missing."""
    body = hpa_body()
    body["spec"]["scaleTargetRef"]["apiVersion"] = "apps/v1beta1"
    found = roots_of(cluster(hpas=(look(body, values=()),)))
    assert {"wrong-target-version", "no-value"} <= found.keys()
    body["spec"]["scaleTargetRef"]["apiVersion"] = "extensions/v1beta1"
    found = roots_of(cluster(hpas=(look(body, values=()),)))
    assert "no-value" not in found
