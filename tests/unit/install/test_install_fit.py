"""Values that fit what is there: what is changed, what is proposed, and what is said of it."""

from dataclasses import replace

import pytest
from install_values import scale, values

from gpuscale.ops.install.cluster.detection import Detected, FoundPrometheus, FoundWorkload
from gpuscale.ops.install.fitting import fit, reasons
from gpuscale.ops.install.propose import Answers, proposed
from gpuscale.ops.install.values import Values
from gpuscale.ops.providers.aks import AKS
from gpuscale.ops.providers.eks import EKS
from gpuscale.ops.providers.gke import GKE
from gpuscale.ops.providers.registry import GENERIC

VISION = FoundWorkload("Deployment", "default", "vision-api")
OPERATED = FoundPrometheus(is_operated=True, url="http://p.m.svc:9090", release="kps")


def test_a_bare_cluster_changes_nothing() -> None:
    given = values(devicePlugin={"enabled": True})
    fitted = fit(given, Detected())
    assert (fitted.values, fitted.lines) == (given, ())


def test_a_second_device_plugin_is_left_out() -> None:
    fitted = fit(values(devicePlugin={"enabled": True}), Detected(device_plugin="kube-system/p"))
    assert not fitted.values.spec.device_plugin.enabled
    assert fitted.lines == ("devicePlugin is left out: DaemonSet kube-system/p is one already",)


def test_nvidias_runtime_class_is_used_where_there_is_one() -> None:
    found = Detected(runtime_class="nvidia")
    assert fit(values(), found).values.spec.agent.runtime_class == "nvidia"
    host = values(agent={"deviceAccess": "host"})
    assert fit(host, found).values == host


def test_the_hpa_is_of_the_version_that_the_cluster_serves() -> None:
    given = values(scale=[scale(hpaVersion="autoscaling/v2beta1")])
    fitted = fit(given, Detected(hpa_version="autoscaling/v2"))
    assert fitted.values.spec.scale[0].hpa_version == "autoscaling/v2"
    assert len(fitted.lines) == 1
    assert fit(values(), Detected(hpa_version="autoscaling/v2")).lines == ()


def test_what_stands_beside_the_installation_is_reported() -> None:
    found = Detected(dcgm_exporter="monitoring/dcgm-exporter", prometheus=OPERATED)
    fitted = fit(values(), found)
    assert fitted.values == values()
    assert len(fitted.lines) == 2


@pytest.mark.parametrize(
    ("answers", "found", "changed"),
    [
        pytest.param(
            Answers(VISION, provider=AKS),
            Detected(),
            {"devicePlugin": {"enabled": True}, "taint": ("sku", "gpu")},
            id="AKS brings no device plugin",
        ),
        pytest.param(
            Answers(VISION),
            Detected(provider=EKS, prometheus=OPERATED, dcgm_exporter="m/dcgm-exporter"),
            {
                "agent": {"enabled": False},
                "prometheus": {"kind": "operator", "url": "http://p.m.svc:9090", "release": "kps"},
            },
            id="dcgm-exporter and Prometheus stay",
        ),
        pytest.param(
            Answers(VISION, signal="gpu-share"),
            Detected(provider=EKS, prometheus=OPERATED, dcgm_exporter="m/dcgm-exporter"),
            {"agent": {"attribution": "processes"}},
            id="a signal that dcgm-exporter has not",
        ),
        pytest.param(
            Answers(VISION, provider=GKE),
            Detected(),
            {"agent": {"deviceAccess": "host"}},
            id="GKE has no runtime",
        ),
        pytest.param(
            Answers(VISION, provider=GENERIC, prometheus_url="http://mine:9090"),
            Detected(device_plugin="kube-system/p"),
            {"prometheus": {"kind": "plain", "url": "http://mine:9090"}, "devicePlugin": None},
            id="said beats seen",
        ),
    ],
)
def test_what_is_proposed_fits_and_is_a_values_file(answers, found, changed) -> None:
    data = proposed(answers, found)
    Values.model_validate(data)
    for key, wanted in changed.items():
        given = data["spec"].get(key)
        if key == "taint":
            given = (given["key"], given["value"])
        assert given == wanted


def test_every_finding_is_reported() -> None:
    found = Detected(
        provider=EKS,
        prometheus=OPERATED,
        dcgm_exporter="a/b",
        device_plugin="c/d",
        has_gpu_operator=True,
        has_keda=True,
        runtime_class="nvidia",
        custom_metrics_by="m/prometheus-adapter",
        external_metrics_by="keda/k",
        resource_metrics_by="kube-system/metrics-server",
    )
    assert len(reasons(found)) == 10
    assert reasons(Detected()) == []


def test_what_is_missing_is_told_of_a_cluster_that_was_looked_at() -> None:
    told = reasons(Detected(is_known=True, has_team_rules=True))
    assert [line.split(",")[0].split(":")[0] for line in told] == [
        "no Prometheus",
        "no metrics-server",
        "ConfigMaps with rules of teams",
    ]


BARE = Detected(is_known=True)
MONITORED = Detected(is_known=True, prometheus=OPERATED, dcgm_exporter="m/dcgm-exporter")
WHOLE = Detected(is_known=True, prometheus=OPERATED, resource_metrics_by="kube-system/m")
URL = "http://mine:9090"
LABELS = "gpuscale.dev/rules=true"


@pytest.mark.parametrize(
    ("said", "found", "api"),
    [
        pytest.param({}, Detected(), None, id="nothing is known, nothing is proposed"),
        pytest.param({}, BARE, {"source": "streams"}, id="no Prometheus"),
        pytest.param({"source": "prometheus"}, BARE, None, id="then one is installed"),
        pytest.param(
            {"autoscaler": "keda"}, BARE, {"source": "streams"}, id="so does KEDA's scaler"
        ),
        pytest.param({"prometheus_url": URL}, BARE, {"resource": True}, id="not seen, but said"),
        pytest.param({}, WHOLE, None, id="all is there"),
        pytest.param({}, MONITORED, {"resource": True}, id="no metrics-server"),
        pytest.param({"serves_resource": False}, MONITORED, None, id="and none is wanted"),
        pytest.param({"serves_resource": True}, WHOLE, {"resource": True}, id="in its place"),
        pytest.param({"source": "streams"}, MONITORED, {"source": "streams"}, id="said"),
        pytest.param(
            {"source": "streams", "scrapes_pods": True},
            Detected(),
            {"source": "streams", "scrapePods": True},
            id="annotated pods",
        ),
        pytest.param(
            {},
            replace(WHOLE, has_team_rules=True),
            {"rulesConfigMaps": LABELS},
            id="teams have rules",
        ),
        pytest.param(
            {"team_rules": ""}, replace(WHOLE, has_team_rules=True), None, id="that nobody wants"
        ),
        pytest.param(
            {"team_rules": "a=b"}, WHOLE, {"rulesConfigMaps": "a=b"}, id="of other labels"
        ),
    ],
)
def test_the_metrics_api_is_proposed_as_the_cluster_can_take_it(said, found, api) -> None:
    data = proposed(Answers(VISION, provider=EKS, **said), found)
    assert data["spec"].get("metricsApi") == api
    Values.model_validate(data)


def test_the_agent_stays_on_where_its_streams_are_wanted() -> None:
    data = proposed(Answers(VISION, provider=EKS, source="streams"), MONITORED)
    assert "agent" not in data["spec"]
    assert Values.model_validate(data).spec.has_streams
