"""Values that fit what is there: what is changed, what is proposed, and what is said of it."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from install_values import scale, values

from gpuscale.core.documents import load_documents
from gpuscale.install.cluster.detect import Detected, FoundPrometheus, FoundWorkload
from gpuscale.install.fit import Answers, fit, proposed, reasons
from gpuscale.install.values import Values

GPUSCALE = Path(sys.executable).parent / "gpuscale"
VISION = FoundWorkload("Deployment", "default", "vision-api")
OPERATED = FoundPrometheus(is_operated=True, url="http://p.m.svc:9090", release="kps")


def test_a_bare_cluster_changes_nothing():
    given = values(devicePlugin={"enabled": True})
    fitted = fit(given, Detected())
    assert (fitted.values, fitted.lines) == (given, ())


def test_a_second_device_plugin_is_left_out():
    fitted = fit(values(devicePlugin={"enabled": True}), Detected(device_plugin="kube-system/p"))
    assert not fitted.values.spec.device_plugin.enabled
    assert fitted.lines == ("devicePlugin is left out: DaemonSet kube-system/p is one already",)


def test_nvidias_runtime_class_is_used_where_there_is_one():
    found = Detected(runtime_class="nvidia")
    assert fit(values(), found).values.spec.agent.runtime_class == "nvidia"
    host = values(agent={"deviceAccess": "host"})
    assert fit(host, found).values == host


def test_the_hpa_is_of_the_version_that_the_cluster_serves():
    given = values(scale=[scale(hpaVersion="autoscaling/v2beta1")])
    fitted = fit(given, Detected(hpa_version="autoscaling/v2"))
    assert fitted.values.spec.scale[0].hpa_version == "autoscaling/v2"
    assert len(fitted.lines) == 1
    assert fit(values(), Detected(hpa_version="autoscaling/v2")).lines == ()


def test_what_stands_beside_the_installation_is_told():
    found = Detected(dcgm_exporter="monitoring/dcgm-exporter", prometheus=OPERATED)
    fitted = fit(values(), found)
    assert fitted.values == values()
    assert len(fitted.lines) == 2


@pytest.mark.parametrize(
    ("answers", "found", "changed"),
    [
        pytest.param(
            Answers(VISION, provider="aks"),
            Detected(),
            {"devicePlugin": {"enabled": True}, "taint": ("sku", "gpu")},
            id="AKS brings no device plugin",
        ),
        pytest.param(
            Answers(VISION),
            Detected(provider="eks", prometheus=OPERATED, dcgm_exporter="m/dcgm-exporter"),
            {
                "agent": {"enabled": False},
                "prometheus": {"kind": "operator", "url": "http://p.m.svc:9090", "release": "kps"},
            },
            id="dcgm-exporter and Prometheus stay",
        ),
        pytest.param(
            Answers(VISION, signal="gpu-share"),
            Detected(provider="eks", prometheus=OPERATED, dcgm_exporter="m/dcgm-exporter"),
            {"agent": {"attribution": "processes"}},
            id="a signal that dcgm-exporter has not",
        ),
        pytest.param(
            Answers(VISION, provider="gke"),
            Detected(),
            {"agent": {"deviceAccess": "host"}},
            id="GKE has no runtime",
        ),
        pytest.param(
            Answers(VISION, provider="generic", prometheus_url="http://mine:9090"),
            Detected(device_plugin="kube-system/p"),
            {"prometheus": {"kind": "plain", "url": "http://mine:9090"}, "devicePlugin": None},
            id="said beats seen",
        ),
    ],
)
def test_what_is_proposed_fits_and_is_a_values_file(answers, found, changed):
    data = proposed(answers, found)
    Values.model_validate(data)
    for key, wanted in changed.items():
        given = data["spec"].get(key)
        if key == "taint":
            given = (given["key"], given["value"])
        assert given == wanted


def test_every_finding_is_told():
    found = Detected(
        provider="eks",
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


def init(folder, *arguments):
    command = [GPUSCALE, "init", *arguments]
    return subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_what_is_missing_is_told_where_nobody_can_be_asked(tmp_path):
    done = init(tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "gpuscale: --workload: expected what to scale",
        "gpuscale: --provider: expected one of: aks, eks, ack, gke, generic",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_once(tmp_path):
    flags = ["--workload", "statefulset/ml/llm", "--provider", "ack", "--max-replicas", "4"]
    assert init(tmp_path, *flags).returncode == 0
    (document,) = load_documents((tmp_path / "values.yaml").read_text(), "values.yaml")
    (given,) = document.data["spec"]["scale"]
    assert given["workload"] == {"kind": "StatefulSet", "namespace": "ml", "name": "llm"}
    again = init(tmp_path, *flags)
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
    assert init(tmp_path, *flags, "--force").returncode == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--workload", "a/b/c/d"], "expected [KIND/][NAMESPACE/]NAME"),
        (["--workload", "a", "--provider", "aws"], "--provider: found 'aws'"),
        (["--workload", "a", "--provider", "eks", "--signal", "cpu"], "--signal: found 'cpu'"),
        (["--workload", "a", "--provider", "eks", "--min-replicas", "0"], "greater than or equal"),
    ],
)
def test_wrong_answers_are_refused(tmp_path, flags, message):
    done = init(tmp_path, *flags)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_on_a_terminal_it_asks_for_what_was_not_said(tmp_path):
    terminal, theirs = pty.openpty()
    os.write(terminal, b"statefulset/ml/llm\neks\n45\n6\n")
    process = subprocess.Popen(
        [GPUSCALE, "init"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _, said = process.communicate(timeout=60)
    os.close(terminal)
    os.close(theirs)
    assert process.returncode == 0, said
    assert "Target of gpu-utilization (%) [60" in said
    (document,) = load_documents((tmp_path / "values.yaml").read_text(), "values.yaml")
    spec = document.data["spec"]
    (given,) = spec["scale"]
    assert given["workload"] == {"kind": "StatefulSet", "namespace": "ml", "name": "llm"}
    assert (spec["provider"], given["target"], given["maxReplicas"]) == ("eks", 45, 6)
