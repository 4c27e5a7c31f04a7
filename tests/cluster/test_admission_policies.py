"""Admission policies of lint on a real API server: what lint finds is refused in our words, and no more."""

import json
import sys
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gpuscale.base.documents.documents import dump_documents
from gpuscale.base.findings import Severity
from gpuscale.ops.lint.admission import admission_policies
from gpuscale.ops.lint.linting import lint
from gpuscale_testing import missing_definitions, wait_until

sys.path.insert(0, str(Path(__file__).parent))
from hpa_manifests import manifest, of_object, table

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
SCALED = "/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects"
SERVICE = "{kind: Service, name: s, apiVersion: v1}"
SPEC = "scaleTargetRef: {name: web}, minReplicaCount: 2"
QUERY = "{type: prometheus, metadata: {serverAddress: 'http://p', query: up, threshold: '5'}}"
LONG = 60 * "a"


def scaled(spec=SPEC, trigger=QUERY, name="web", more=""):
    return (
        f"apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {{name: {name}}}\n"
        f"spec: {{{spec}, triggers: [{trigger}]{more}}}\n"
    )


def of_resource(name, kind="Resource", more=""):
    field = f"{kind[:1].lower()}{kind[1:]}"
    target = "target: {type: AverageValue, averageValue: 5}"
    return f"{{type: {kind}, {field}: {{name: {name}, {more}{target}}}}}"


def modified(target):
    return (
        ", fallback: {failureThreshold: 3, replicas: 2}, advanced: {scalingModifiers: "
        f"{{formula: a + 1, target: '{target}'}}}}"
    )


CASES = [
    (
        "no-scale-target",
        manifest(target="{apiVersion: apps/v1, kind: DaemonSet, name: d}"),
        manifest(target="{apiVersion: apps/v1, kind: statefulset, name: d}"),
    ),
    (
        "no-scale-target",
        manifest(target="{apiVersion: apps/v1, kind: Deployments, name: d}"),
        manifest(target="{apiVersion: example.com/v1, kind: Deployments, name: d}"),
    ),
    (
        "no-scale-target",
        manifest(target="{apiVersion: apps/v1, kind: DEPLOYMENT, name: d}"),
        manifest(target="{apiVersion: apps/v1, kind: deployment, name: d}"),
    ),
    (
        "wrong-target-version",
        manifest(target="{apiVersion: extensions/v1beta1, kind: Deployment, name: d}"),
        manifest(target="{apiVersion: apps/v1beta1, kind: Deployment, name: d}"),
    ),
    (
        "contradicting-target-type",
        manifest(metric=of_object(SERVICE, "{type: Value, averageValue: 5}")),
        manifest(metric=of_object(SERVICE, "{type: AverageValue, averageValue: 5}")),
    ),
    (
        "gpu-resource-metric",
        manifest(metric=of_resource("nvidia.com/gpu")),
        manifest(metric=of_resource("memory")),
    ),
    (
        "gpu-resource-metric",
        manifest(metric=of_resource("amd.com/gpu.shared", "ContainerResource", "container: c, ")),
        manifest(metric=of_resource("cpu", "ContainerResource", "container: c, ")),
    ),
    (
        "cluster-scoped-object",
        manifest(metric=of_object("{kind: Node, name: n1, apiVersion: v1}")),
        manifest(metric=of_object("{kind: Namespace, name: default, apiVersion: v1}")),
    ),
    (
        "cluster-scoped-object",
        manifest(metric=of_object("{kind: StorageClass, name: n1, apiVersion: storage.k8s.io/v1}")),
        manifest(metric=of_object("{kind: StorageClass, name: n1, apiVersion: example.com/v1}")),
    ),
    (
        "no-scale-target",
        scaled("scaleTargetRef: {name: web, kind: DaemonSet}"),
        scaled("scaleTargetRef: {name: web, kind: StatefulSet}"),
    ),
    (
        "wrong-target-version",
        scaled("scaleTargetRef: {name: web, apiVersion: apps/v1beta1}"),
        scaled("scaleTargetRef: {name: web, apiVersion: example.com/v1, kind: Web}"),
    ),
    ("name-too-long", scaled(name=LONG), scaled(name=LONG[:54])),
    ("name-too-long", scaled(name=LONG + "bbbb"), scaled()),
    ("fallback-without-effect", scaled(more=modified("2.5")), scaled(more=modified("25"))),
    (
        "refused-manifest",
        scaled(trigger=QUERY.replace(", threshold: '5'", "")),
        scaled(trigger="{type: cron, metadata: {timezone: UTC}}"),
    ),
]
"""A check, an object that it finds something in, and one beside it that is right."""


def until_refused(create, text):
    wait_until(lambda: create(text) is not None, "a refusal by the policy", 60)


def errors(text):
    """Return the ids of lint's errors."""
    found = lint([("object.yaml", text)]).findings
    return {each.check.id for each in found if each.check.severity is Severity.ERROR}


@pytest.fixture(scope="module")
def create(plane):
    """A function that asks the server to create an object and keep nothing: its refusal, or None."""
    if reason := missing_definitions(["keda"]):
        pytest.skip(reason)
    plane.define("keda")
    address = urlsplit(plane.url)
    connection = HTTPSConnection(
        address.hostname, address.port, context=plane.ssl_context(), timeout=60
    )

    def ask(text):
        path = SCALED if "keda.sh" in text else HPAS
        if "autoscaling/v1" in text:
            path = path.replace("/v2/", "/v1/")
        headers = {"Content-Type": "application/yaml", "Accept": "application/json"}
        connection.request("POST", f"{path}?dryRun=All", text.encode(), headers)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        return None if answer.status == 201 else said["message"]

    yield ask
    connection.close()


@pytest.fixture(scope="module")
def guarded(plane, create):
    """What the server said of a table of HPAs before the policies were there, by its text."""
    before = {text: create(text) for text in table() if "autoscaling/v2\n" in text}
    assert [said for _, bad, _ in CASES if (said := create(bad))] == []
    plane.apply(dump_documents(admission_policies()))
    for bad in (CASES[0][1], CASES[-1][1]):
        until_refused(create, bad)
    return before


@pytest.mark.parametrize(("check", "bad", "good"), CASES)
def test_the_faulty_object_is_refused_and_the_good_one_is_not(
    create, guarded, check, bad, good
) -> None:
    assert check in errors(bad)
    assert f"(gpuscale lint: {check})" in create(bad)
    assert create(good) is None


@pytest.mark.parametrize("resource", ["horizontalpodautoscalers", "scaledobjects"])
def test_the_server_finds_no_fault_in_the_types_of_the_expressions(
    plane, guarded, resource
) -> None:
    def status():
        found = plane.get(f"validatingadmissionpolicy/gpuscale-lint-{resource}")
        seen = found.get("status", {})
        is_seen = seen.get("observedGeneration") == found["metadata"]["generation"]
        return seen if is_seen else None

    seen = wait_until(status, "the types of the expressions to be checked", 60)
    assert seen.get("typeChecking", {}).get("expressionWarnings", []) == []


def test_of_a_table_of_hpas_those_are_refused_in_which_lint_finds_such_an_error(
    create, guarded
) -> None:
    ids = {check for check, bad, _ in CASES if "autoscaling" in bad}
    taken = [text for text, said in guarded.items() if said is None]
    refused = {text for text in taken if create(text) is not None}
    assert refused == {text for text in taken if errors(text) & ids}
    assert 0 < len(refused) < len(taken)


def test_what_is_stored_may_still_be_labelled(plane, guarded, create) -> None:
    bad = CASES[0][1].replace("name: h}", "name: stored}")
    policies = "validatingadmissionpolicybinding/gpuscale-lint-horizontalpodautoscalers"
    plane.kubectl("delete", policies)
    wait_until(lambda: create(bad) is None, "no refusal", 60)
    plane.apply(bad)
    plane.apply(dump_documents(admission_policies()))
    until_refused(create, CASES[0][1])
    plane.kubectl("label", "hpa/stored", "team=a")
    assert plane.get("hpa/stored")["metadata"]["labels"] == {"team": "a"}
