# mypy: disable-error-code="dict-item"
"""Whatever an API server answers becomes a Decision document that can be read and answered."""

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import read_hpa
from gpuscale.hpa.decisions.answers import answer
from gpuscale.hpa.decisions.documents import decide_request, read_decision
from gpuscale.lab.views.decision import decision_lines
from gpuscale.ops.observe.answers import observed_entry
from gpuscale.ops.observe.document import Sight, document_text
from gpuscale.ops.observe.history import read_history

NOW_MS = 1_767_225_600_000
HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: vision, namespace: prod, uid: u}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: vision}
  maxReplicas: 9
  metrics:
  - {type: Pods, pods: {metric: {name: gpu_util}, target: {type: AverageValue, averageValue: 50}}}
  - type: Object
    object:
      describedObject: {apiVersion: v1, kind: Service, name: vision}
      metric: {name: requests}
      target: {type: Value, value: 50}
  - {type: External, external: {metric: {name: queue}, target: {type: Value, value: 50}}}
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
  behavior: {scaleDown: {policies: [{type: Pods, value: 1, periodSeconds: 60}]}}
"""
(_DOCUMENT,) = load_documents(HPA, "hpa.yaml")
BODY = _DOCUMENT.data
PARSED = read_hpa(Fields(_DOCUMENT, BODY))
KEYS = [
    *(
        "items",
        "metadata",
        "name",
        "labels",
        "deletionTimestamp",
        "spec",
        "containers",
        "resources",
    ),
    *(
        "requests",
        "cpu",
        "initContainers",
        "restartPolicy",
        "status",
        "phase",
        "conditions",
        "type",
    ),
    *("lastTransitionTime", "startTime", "describedObject", "value", "timestamp", "windowSeconds"),
    *("window", "usage", "message", "reason", "involvedObject", "uid", "lastTimestamp", "series"),
    *("replicas", "selector", "currentReplicas", "desiredReplicas", "lastScaleTime"),
]
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**40), 10**40)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        [
            *(
                "vision-1",
                "20",
                "500m",
                "-1",
                "9e30",
                "1m0.5s",
                "Running",
                "Ready",
                "True",
                "False",
            ),
            *("app=x", "x in (", "2025-12-31T23:59:55Z", "0001-01-01T00:00:00Z", "u"),
            *("9999-12-31T23:59:59Z", "SuccessfulRescale", "New size: 4; reason: x above target"),
            *("New size: 9999999999; reason: All metrics below target", "ScalingActive"),
        ]
    )
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=20,
)
named = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"name": st.just("vision-1")}, optional={"labels": trees})},
    optional={"spec": trees, "status": trees},
)
bodies = st.dictionaries(st.sampled_from(KEYS), trees, max_size=6)
lists = st.fixed_dictionaries({"items": st.lists(bodies, max_size=3)}) | bodies
scales = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries({}, optional={"replicas": st.integers(0, 12) | trees}),
        "status": st.fixed_dictionaries({"selector": st.just("app=x") | leaves}),
    }
)
counts = st.integers(0, 2**31 - 1)
statuses = st.fixed_dictionaries(  # the API server holds these two to their type
    {}, optional={"currentReplicas": counts, "desiredReplicas": counts, "conditions": trees}
)


@given(
    st.tuples(lists, lists, lists, lists),
    st.lists(named, max_size=1),
    st.lists(bodies, max_size=3),
    scales,
    statuses,
)
def test_any_answers_become_a_document_that_is_answered(
    answers, pods, events, scale, status
) -> None:
    body = {**BODY, "status": status}
    pairs = zip(PARSED.metrics, answers, strict=True)
    sight = Sight(
        body,
        PARSED,
        NOW_MS,
        scale=scale,
        pods=pods,
        observed=[observed_entry(spec, each, NOW_MS) for spec, each in pairs],
        history=read_history(body, events, PARSED, NOW_MS, events),
    )
    (document,) = load_documents(document_text(sight), "hpa/vision")
    request = read_decision(document)
    decision = decide_request(request)
    answer(request, decision)
    list(decision_lines(request, decision))
