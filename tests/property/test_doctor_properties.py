"""Whatever objects, series and metrics a cluster has, they are judged and told, never a crash."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.exposition.parse import parse_text
from gpuscale.ops.doctor.checks import CHECKS
from gpuscale.ops.doctor.checks.prometheus import service_in
from gpuscale.ops.doctor.diagnosis import diagnose
from gpuscale.ops.doctor.judges import KINDS
from gpuscale.ops.doctor.snapshot import AgentLook, Look, PrometheusLook, Snapshot
from gpuscale.ops.findings_text import chain_document as document
from gpuscale.ops.findings_text import chain_lines as text_lines
from gpuscale.ops.lint.checks import CHECKS as LINT_CHECKS

GPU = "nvidia.com/gpu"
KEYS = (
    *("metadata", "spec", "status", "name", "namespace", "labels", "taints", "template"),
    *("containers", "containerStatuses", "conditions", "type", "reason", "message", "limits"),
    *("resources", "capacity", "allocatable", "hard", "used", "group", "service", "caBundle"),
    *("args", "ports", "port", "lastState", "terminated", "exitCode", "livenessProbe", "data"),
    *("restartCount", "image", "tolerations", "key", "effect", "insecureSkipTLSVerify", GPU),
    *("ownerReferences", "controller", "involvedObject", "endpoints", "phase", "nodeName"),
)
WORDS = st.sampled_from(
    (
        *("PodScheduled", "False", "Available", "Ready", "web", "gpu-1", "1", "137", "NoSchedule"),
        *("dcgm-exporter", "k8s-device-plugin", "prometheus-adapter", "--prometheus-url=http://["),
        *("--prometheus-url=http://p.m.svc:99999", "custom.metrics.k8s.io", "x509", "4G9=", ""),
        *(f"Insufficient {GPU}", "Backoff", "external.metrics.k8s.io", "status: Unhealthy"),
    )
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 200) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=30,
)
BODIES = st.lists(st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=4), max_size=3)
LABELS = st.dictionaries(st.sampled_from(("job", "pod", "exported_pod", "instance")), WORDS)
ROWS = st.lists(st.tuples(LABELS, st.floats()), max_size=3)


@given(
    st.dictionaries(st.sampled_from([kind.plural for kind in KINDS]), BODIES.map(Look)),
    ROWS,
    ROWS,
)
def test_any_objects_and_series(looks, targets, usage) -> None:
    prometheus = PrometheusLook("http://p", targets=targets, usage=usage)
    report = diagnose(Snapshot(1_790_000_000_000, looks=looks, prometheus=prometheus))
    assert list(text_lines(report))
    assert json.dumps(document(report))
    assert {finding.check.id for finding in report.findings} <= {*CHECKS, *LINT_CHECKS}


@given(
    st.lists(
        st.sampled_from(
            (
                *('DCGM_FI_DEV_GPU_UTIL{UUID="a"} 4', "DCGM_FI_DEV_FB_USED 1", "# TYPE x gauge"),
                *("gpuscale_exporter_collect_up NaN", "gpuscale_exporter_gpu_up 0", "DCGM_X{"),
                "gpuscale_exporter_newest_reading_timestamp_seconds -Inf",
            )
        ),
        max_size=5,
    )
)
def test_any_metrics_of_an_agent(lines) -> None:
    try:
        families = {each.name: each for each in parse_text("\n".join(lines) + "\n")}
    except GpuscaleError:
        return
    agents = (AgentLook("gpu-1", "gpuscale/a", families),)
    assert list(text_lines(diagnose(Snapshot(1_790_000_000_000, agents=agents))))


@given(st.text(max_size=40))
def test_any_address(text) -> None:
    found = service_in(f"http://{text}")
    assert found is None or len(found) == 3
