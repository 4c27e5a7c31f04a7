"""Decision documents: no tree breaks their reader, and a document decides as the plain values do."""

import json

import typer
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gpuscale.base.documents.documents import Document
from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.manifests import read_manifest
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.quantity import parse_quantity
from gpuscale.cli.commands.decide import decide as decide_command
from gpuscale.hpa import (
    ContainerInfo,
    ContainerUsages,
    ControllerSettings,
    ExternalValues,
    FetchError,
    HpaState,
    MetricValue,
    ObjectValue,
    PodInfo,
    PodUsage,
    PodValues,
    ReadyCondition,
    Recommendation,
    Scale,
    ScaleEvent,
    decide,
)
from gpuscale.hpa.decisions.answers import answer
from gpuscale.hpa.decisions.document_fields import NOW_MS
from gpuscale.hpa.decisions.documents import decide_request, read_decision
from gpuscale.lab.views.decision import decision_lines

app = typer.Typer()
app.command()(decide_command)

# ---- any tree

KEYS = [
    *("hpa", "scale", "pods", "observed", "history", "config", "apiVersion", "kind", "metadata"),
    *("spec", "name", "labels", "phase", "ready", "readyTransitionAge", "startAge", "deleted"),
    *("containers", "requests", "pod", "value", "samples", "error", "age", "window", "replicas"),
    *("recommendations", "scaleUps", "scaleDowns", "change", "specReplicas", "statusReplicas"),
    *("selector", "tolerance", "downscaleStabilization", "scaleToZero", "status", "conditions"),
    *("selectingHpas", "unknown", "namespace", "currentReplicas", "desiredReplicas"),
]
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["p0", "c", "True", "Running", "app=x", "20", "500m", "cpu", "x in ("])
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=25,
)


@example({"pods": [{"startAge": 10**400}], "config": {"tolerance": 10**400}})
@given(trees)
def test_any_tree_is_answered_or_refused(spec) -> None:
    data = {"apiVersion": "gpuscale.dev/v1alpha1", "kind": "Decision", "spec": spec}
    assert_answered_or_refused(data)


@given(trees)
def test_any_document_is_answered_or_refused(data) -> None:
    assert_answered_or_refused(data)


def assert_answered_or_refused(data) -> None:
    document = Document("any.yaml", 0, data, {(): 1})
    try:
        request = read_decision(document)
    except ConfigError as error:
        str(error).encode(errors="backslashreplace")
        return
    decision = decide_request(request)
    assert json.loads(json.dumps(answer(request, decision), allow_nan=False))
    assert all("\n" not in line.text for line in decision_lines(request, decision))


# ---- the same as without a document

ages_ms = st.integers(0, 400_000)
milli = st.integers(0, 10**9)
names = st.integers(0, 6).map("p{}".format)
targets = st.integers(1, 100_000).map(lambda n: {"type": "AverageValue", "averageValue": f"{n}m"})
percents = st.integers(1, 500).map(lambda n: {"type": "Utilization", "averageUtilization": n})


def seconds(milliseconds):
    return milliseconds / 1000


@st.composite
def errors(draw):
    text = draw(st.text(min_size=1, max_size=20))
    return {"error": text}, FetchError(text)


@st.composite
def pod_answers(draw):
    drawn = draw(st.dictionaries(names, st.tuples(milli, ages_ms), max_size=6))
    written = [
        {"pod": pod, "value": f"{n}m", "age": seconds(age)} for pod, (n, age) in drawn.items()
    ]
    values = (MetricValue(pod, n, NOW_MS - age) for pod, (n, age) in drawn.items())
    return {"pods": written}, PodValues(tuple(values))


@st.composite
def usage_answers(draw):
    drawn = draw(st.dictionaries(names, st.tuples(st.none() | milli, ages_ms, ages_ms), max_size=6))
    written = [
        {
            "pod": pod,
            "containers": {"c": None if n is None else f"{n}m"},
            "age": seconds(age),
            "window": seconds(window),
        }
        for pod, (n, age, window) in drawn.items()
    ]
    usages = (
        PodUsage(pod, {"c": n}, NOW_MS - age, window) for pod, (n, age, window) in drawn.items()
    )
    return {"pods": written}, ContainerUsages(tuple(usages))


@st.composite
def metrics(draw):
    """Draw a metric as a manifest writes it, what a document says of it, and the observation."""
    kind = draw(st.sampled_from(["Pods", "Object", "External", "Resource"]))
    metric = {"name": "m"}
    if kind == "Pods":
        spec = {"metric": metric, "target": draw(targets)}
        written, observation = draw(pod_answers() | errors())
    elif kind == "Object":
        described = {"kind": "Service", "name": "web"}
        spec = {"describedObject": described, "metric": metric, "target": draw(targets)}
        number = draw(milli)
        written, observation = {"value": f"{number}m"}, ObjectValue(number)
    elif kind == "External":
        spec = {"metric": metric, "target": draw(targets)}
        numbers = draw(st.lists(milli, max_size=3))
        written = {"samples": [f"{n}m" for n in numbers]}
        observation = ExternalValues(tuple(numbers))
    else:
        spec = {"name": "cpu", "target": draw(percents)}
        written, observation = draw(usage_answers() | errors())
    return {"type": kind, kind.lower(): spec}, written, observation


@st.composite
def pods(draw):
    start, changed = draw(st.none() | ages_ms), draw(ages_ms)
    ready, phase = draw(st.sampled_from(ReadyCondition)), draw(st.sampled_from(PodPhase))
    deleted = draw(st.booleans())
    written = {
        "phase": phase.value,
        "deleted": deleted,
        "labels": {"app": "x"},
        "containers": [{"name": "c", "requests": {"cpu": "1"}}],
    }
    if start is not None:
        written["startAge"] = seconds(start)
    if ready is not ReadyCondition.ABSENT:
        written |= {"ready": ready.value, "readyTransitionAge": seconds(changed)}
    pod = {
        "phase": phase,
        "deleted": deleted,
        "labels": {"app": "x"},
        "ready": ready,
        "ready_transition_ms": None if ready is ReadyCondition.ABSENT else NOW_MS - changed,
        "start_ms": None if start is None else NOW_MS - start,
        "containers": (ContainerInfo("c", {"cpu": parse_quantity(1)}),),
    }
    return written, pod


rules = st.fixed_dictionaries(
    {},
    optional={
        "stabilizationWindowSeconds": st.integers(0, 400),
        "selectPolicy": st.sampled_from(["Max", "Min", "Disabled"]),
        "policies": st.lists(
            st.fixed_dictionaries(
                {
                    "type": st.sampled_from(["Pods", "Percent"]),
                    "value": st.integers(1, 200),
                    "periodSeconds": st.integers(1, 400),
                }
            ),
            min_size=1,
            max_size=2,
        ),
        "tolerance": st.integers(0, 200).map("{}m".format),
    },
)
behaviors = st.none() | st.fixed_dictionaries({}, optional={"scaleUp": rules, "scaleDown": rules})
pasts = st.lists(st.tuples(st.integers(1, 50), ages_ms), max_size=4)


@st.composite
def situations(draw):
    """Draw a document, and the same as `decide` takes it."""
    drawn = draw(st.lists(metrics(), min_size=1, max_size=3))
    low = draw(st.integers(1, 5))
    manifest = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": low,
            "maxReplicas": draw(st.integers(low, 60)),
            "metrics": [metric for metric, _, _ in drawn],
            "behavior": draw(behaviors),
        },
    }
    spec, status = draw(st.integers(0, 70)), draw(st.integers(0, 70))
    found = draw(st.dictionaries(names, pods(), max_size=6))
    recommended, ups, downs = draw(pasts), draw(pasts), draw(pasts)
    window, tolerance = draw(st.integers(0, 400)), draw(st.integers(0, 30)) / 100
    document = {
        "hpa": manifest,
        "scale": {"specReplicas": spec, "statusReplicas": status, "selector": "app=x"},
        "pods": [{"name": name, **written} for name, (written, _) in found.items()],
        "observed": [written for _, written, _ in drawn],
        "history": {
            "recommendations": [{"replicas": n, "age": seconds(age)} for n, age in recommended],
            "scaleUps": [{"change": n, "age": seconds(age)} for n, age in ups],
            "scaleDowns": [{"change": n, "age": seconds(age)} for n, age in downs],
        },
        "config": {"downscaleStabilization": window, "tolerance": tolerance},
    }
    state = HpaState(
        tuple(Recommendation(n, NOW_MS - age) for n, age in recommended),
        tuple(ScaleEvent(n, NOW_MS - age) for n, age in ups),
        tuple(ScaleEvent(n, NOW_MS - age) for n, age in downs),
    )
    inputs = (
        read_manifest(Document("hpa.yaml", 0, manifest, {(): 1})),
        Scale(spec, status, "app=x"),
        tuple(PodInfo(name, **pod) for name, (_, pod) in found.items()),
        tuple(observation for _, _, observation in drawn),
        state,
        NOW_MS,
        ControllerSettings(window, tolerance),
    )
    return as_document(document), inputs


def as_document(spec):
    return {"apiVersion": "gpuscale.dev/v1alpha1", "kind": "Decision", "spec": spec}


def paths(node, path=()):
    """Return the place of every value of a tree."""
    below = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    return [path, *(found for key, value in below for found in paths(value, (*path, key)))]


def with_other(node, path, value):
    """Return the tree with another value at a place."""
    if not path:
        return value
    other = node.copy()
    other[path[0]] = with_other(node[path[0]], path[1:], value)
    return other


@given(situations(), st.data())
def test_a_document_with_a_value_exchanged_is_answered_or_refused(situation, data) -> None:
    document, _ = situation
    path = data.draw(st.sampled_from(paths(document)))
    assert_answered_or_refused(with_other(document, path, data.draw(leaves | trees)))


@given(situations())
def test_a_document_decides_as_its_values_do(situation) -> None:
    data, inputs = situation
    request = read_decision(Document("any.yaml", 0, data, {(): 1}))
    assert decide_request(request) == decide(*inputs)


@given(st.lists(situations(), min_size=1, max_size=3))
def test_json_is_one_valid_line_for_each_document_in_order(drawn) -> None:
    text = yaml.safe_dump_all(data for data, _ in drawn)
    result = CliRunner().invoke(app, ["--output", "json", "-"], input=text)
    lines = result.stdout.splitlines()
    assert result.exit_code in {0, 1}
    assert len(lines) == len(drawn)
    desired = [decide(*inputs).desired_replicas for _, inputs in drawn]
    assert [json.loads(line)["desiredReplicas"] for line in lines] == desired


@given(situations())
def test_the_text_tells_every_step_on_a_line_of_its_own(situation) -> None:
    request = read_decision(Document("any.yaml", 0, situation[0], {(): 1}))
    lines = [line.text for line in decision_lines(request, decide_request(request))]
    assert lines.count("Why") == 1
    assert not any(set(line) & set("\n\r\x1b") for line in lines)
