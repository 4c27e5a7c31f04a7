"""The Helm chart renders what the renderer renders, object by object, and is the one in the repository."""

import base64
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from install_values import rendered, scale

from gpuscale.core.documents.documents import load_documents
from gpuscale.install.chart.chart import chart_files
from gpuscale.install.chart.fold import Case, Dimension, Folder
from gpuscale.install.values import Values

CHART = Path(__file__).parents[3] / "charts" / "gpuscale"
HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
needs_helm = pytest.mark.skipif(
    HELM is None and not os.environ.get("CI"), reason="needs helm, of the package helm-binary"
)
URL = "https://prometheus.monitoring.svc:9091/path"


def test_the_chart_in_the_repository_is_the_renderers():
    there = {
        str(path.relative_to(CHART)): path.read_text()
        for path in CHART.rglob("*")
        if path.is_file()
    }
    assert there == chart_files(), "run `python -m gpuscale.install.chart`"


def template(spec, folder):
    path = folder / "values.yaml"
    path.write_text(json.dumps({"spec": spec}))
    command = [HELM, "template", "any", CHART, "--namespace=gpuscale", f"--values={path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [each.data for each in load_documents(done.stdout, "helm")]


def by_name(objects):
    found = {}
    for each in objects:
        metadata = each["metadata"]
        name = (each["kind"], metadata.get("namespace"), metadata["name"])
        assert name not in found
        found[name] = each
    return found


def comparable(objects):
    """Objects by name; certificates differ each time, and the namespace is Helm's to make."""
    found = by_name(json.loads(json.dumps(objects)))
    for (kind, _, _), each in found.items():
        if kind == "Secret":
            each["data"] = sorted(each["data"])
        if kind == "APIService" and "caBundle" in each["spec"]:
            each["spec"]["caBundle"] = "..."
    return {name: each for name, each in found.items() if name[0] != "Namespace"}


PROMETHEUS = (
    {"kind": "own", "scrapeInterval": "30s"},
    {"kind": "operator", "url": URL, "release": "kps"},
    {"kind": "operator", "url": URL, "honorLabels": False},
    {"kind": "plain", "url": "http://p"},
    {"kind": "plain", "url": "https://p", "honorLabels": False},
)
APIS = (
    {},
    {"enabled": False},
    {"certificates": "cert-manager", "external": True},
    {"certificates": "cert-manager", "issuer": "corp", "replicas": 3},
    {"externalName": "api.example.com", "port": 8443},
    {"source": "streams", "rulesConfigMaps": "rules in (a, b),!old"},
    {"source": "streams", "externalName": "api.example.com", "scrapePods": True},
    {"source": "streams", "scrapePods": True, "exporterPods": "gpu-operator,a/app=b"},
    {
        "source": "streams",
        "prometheusRules": 'groups:\n- {name: g,rules: [{alert: A,expr: x, labels: {a: "{{ $value }}"}}]}\n',
    },
    {
        "source": "streams",
        "shareAgents": False,
        "storeSize": "512Mi",
        "prometheusRules": "groups: []\n",
        "alertmanagers": ["https://a:9093", "https://b:9093"],
        "alertmanagerCaSecret": "ca",
    },
    {
        "source": "streams",
        "prometheusRules": "groups: []\n",
        "alertmanagers": ["https://a"],
        "alertmanagerTokenSecret": "token",
    },
    {"resource": True, "external": True},
    {"resource": True, "rules": "rules: []\n"},
    {"rules": 'rules:\n- seriesQuery: "a{{b}}"\n'},
)
AGENTS = (
    {"attribution": "processes", "style": "both"},
    {
        "attribution": "processes",
        "style": "both",
        "deviceAccess": "host",
        "collectInterval": "500ms",
    },
    {"attribution": "allocations", "runtimeClass": "nvidia"},
    {"enabled": False},
)
PLUGINS = ({}, {"enabled": True}, {"enabled": True, "replicas": 4, "migStrategy": "mixed"})
SCALES = (
    [],
    [scale(workload={"name": "a.b"}, autoscaler="keda", target=62.5)],
    [scale(metric="object"), scale(workload={"kind": "StatefulSet", "name": "llm"})],
    [scale(hpaVersion="autoscaling/v2beta1"), scale(workload={"name": "c", "namespace": "ml"})],
    [scale(hpaVersion="autoscaling/v2beta2", metric="object", scaleDownStabilizationSeconds=0)],
    [scale(signal="graphics-engine", target=0.7, autoscaler="keda")],
)
SAMPLES = ({}, {"bert": True, "namespace": "ml"}, {"visionImage": "v:1", "mnistJobs": 20})
DASHBOARDS = (
    {},
    {"enabled": False},
    {"namespace": "grafana", "label": "my_board", "gpuHourPrice": 1.25, "currency": "EUR"},
)
PROVIDERS = ("aks", "eks", "ack", "gke", "generic")


def spec(seed):
    """Return a spec with each option chosen by a seed, less what can't go together."""
    choose = random.Random(seed).choice
    found = {
        "provider": PROVIDERS[seed % len(PROVIDERS)],
        "prometheus": choose(PROMETHEUS),
        "metricsApi": choose(APIS),
        "agent": choose(AGENTS),
        "devicePlugin": choose(PLUGINS),
        "scale": choose(SCALES),
        "samples": choose(SAMPLES),
        "networkPolicies": choose((True, False)),
        "recordingRules": True,
        "alerts": choose(({}, {"enabled": False}, {"idle": "1h", "docsUrl": "https://x/y"})),
        "dashboards": choose(DASHBOARDS),
        "image": choose(({}, {"repository": "r.example.com/g", "tag": "1", "pullSecret": "s"})),
        "taint": {"key": "sku", "value": "gpu"},
    }
    if any(each.get("autoscaler") == "keda" for each in found["scale"]):
        found["metricsApi"] = {**found["metricsApi"], "external": False}
        found["alerts"] = {}
    if found["metricsApi"].get("resource") and found["prometheus"]["kind"] == "own":
        found["prometheus"] = PROMETHEUS[-1]
    if found["metricsApi"].get("source") == "streams":
        found["agent"] = AGENTS[0] if found["agent"] == {"enabled": False} else found["agent"]
        found["scale"] = [{**each, "metric": "pods"} for each in found["scale"]]
    return found


@needs_helm
@pytest.mark.parametrize("seed", range(40))
def test_helm_renders_the_same_objects(tmp_path, seed):
    given = spec(seed)
    wanted = comparable(rendered(Values.model_validate({"spec": given})))
    assert comparable(template(given, tmp_path)) == wanted


@needs_helm
@pytest.mark.parametrize("kind", [{}, {"kind": "plain", "url": URL}])
@pytest.mark.parametrize("api", [{}, {"enabled": False}, {"source": "streams"}])
@pytest.mark.parametrize("wishes", [(True, False), (False, True), (False, False)])
def test_helm_has_a_prometheus_where_the_renderer_has_one(tmp_path, kind, api, wishes):
    alerts, dashboards = ({"enabled": each} for each in wishes)
    given = {"prometheus": kind, "metricsApi": api, "alerts": alerts, "dashboards": dashboards}
    wanted = comparable(rendered(Values.model_validate({"spec": given})))
    assert comparable(template(given, tmp_path)) == wanted


@needs_helm
def test_the_charts_certificate_is_for_the_service_and_signed_by_its_bundle(tmp_path):
    objects = by_name(template({}, tmp_path))
    secret = objects["Secret", "gpuscale", "gpuscale-metrics-api-tls"]["data"]
    service = objects["APIService", None, "v1beta2.custom.metrics.k8s.io"]
    assert service["spec"]["caBundle"] == secret["ca.crt"]
    for name in ("ca.crt", "tls.crt"):
        (tmp_path / name).write_bytes(base64.b64decode(secret[name]))
    host = "gpuscale-metrics-api.gpuscale.svc"
    command = ["openssl", "verify", "-verify_hostname", host, "-CAfile"]
    files = [tmp_path / "ca.crt", tmp_path / "tls.crt"]
    assert subprocess.run([*command, *files], capture_output=True, check=False).returncode == 0


@needs_helm
def test_helm_finds_nothing_to_complain_of(tmp_path):
    done = subprocess.run([HELM, "lint", "--strict", CHART], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
def test_a_wrong_values_file_is_refused_by_its_schema(tmp_path):
    (tmp_path / "values.yaml").write_text("spec: {provider: aws, prometheus: {scrapeInterval: 15}}")
    command = [HELM, "template", "any", CHART, f"--values={tmp_path / 'values.yaml'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "provider" in done.stderr
    assert "scrapeInterval" in done.stderr


def fold(names, build):
    """Fold what `build` gives for each combination of switches of these names."""
    switches = [Dimension(name, (f".{name}", f"not .{name}")) for name in names]
    bits = [tuple(number >> i & 1 for i in range(len(names))) for number in range(2 ** len(names))]
    cases = [Case(each, build(*(not bit for bit in each))) for each in bits]
    return Folder(switches, lambda value, _: json.dumps(value), str.upper).document(cases)


def test_what_is_the_same_is_written_once():
    assert fold("ab", lambda a, b: {"x": [{"y": 1}]}) == ["---", "x:", "- y: 1"]


def test_a_condition_stands_around_the_smallest_part_that_differs():
    assert fold("ab", lambda a, b: {"x": {"y": 1, **({"z": 2} if b else {})}}) == [
        "---",
        "x:",
        "  y: 1",
        "{{- if .b }}",
        "  z: 2",
        "{{- end }}",
    ]


def test_items_of_a_list_come_and_go_by_themselves():
    def build(a, b):
        return {"x": ["k", *(["a"] if a else []), *(["b"] if b else [])]}

    assert fold("ab", build) == [
        "---",
        "x:",
        '- "k"',
        "{{- if .a }}",
        '- "a"',
        "{{- end }}",
        "{{- if .b }}",
        '- "b"',
        "{{- end }}",
    ]


def test_lines_of_a_text_come_and_go_by_themselves():
    def build(a, b):
        return {"x": "first\n" + ("only a\n" if a else "") + "last\n"}

    assert fold("ab", build) == [
        "---",
        "x: |",
        "  FIRST",
        "{{- if .a }}",
        "  ONLY A",
        "{{- end }}",
        "  LAST",
    ]


def test_an_option_that_was_forgotten_is_an_error():
    given = [Case((0,), {"x": 1}), Case((0,), {"x": 2})]
    with pytest.raises(ValueError, match="differ by none of: a"):
        Folder([Dimension("a", ("y", "n"))], lambda value, _: str(value), str).document(given)
