"""What `init` proposes for each signal is nothing that lint complains about."""

import json

import pytest

from gpuscale.base.documents.documents import dump_documents
from gpuscale.base.findings import Severity
from gpuscale.ops.install.cluster.detection import Detected, FoundWorkload
from gpuscale.ops.install.linted import lint_values
from gpuscale.ops.install.propose import Answers, proposed
from gpuscale.ops.install.values import parse_values
from gpuscale.ops.providers import named
from gpuscale.signals import SIGNALS


def files(autoscaler, least, wake):
    """Return a file for all signals that want the same settings beside their scale."""
    scales = {}
    for name, signal in SIGNALS.items():
        answers = Answers(
            workload=FoundWorkload("Deployment", "ml", name),
            signal=name,
            of=None if signal.kind == "pods" else "some",
            provider=named("eks"),
            autoscaler=autoscaler,
            min_replicas=least,
            wake=wake,
            image="registry.example/gpuscale:1",
        )
        data = proposed(answers, Detected())
        scale = data["spec"].pop("scale")
        scales.setdefault(json.dumps(data), []).extend(scale)
    for head, listed in scales.items():
        data = json.loads(head)
        data["spec"]["scale"] = listed
        yield dump_documents([data]), len(listed)


@pytest.mark.parametrize(
    ("autoscaler", "least", "wake"), [("hpa", 1, None), ("keda", 0, "rabbitmq/queue")]
)
def test_lint_has_nothing_against_any_signal(autoscaler, least, wake) -> None:
    looked_at = 0
    for text, count in files(autoscaler, least, wake):
        report = lint_values(parse_values(text, "v.yaml"), text, "v.yaml")
        assert [each for each in report.findings if each.check.severity is not Severity.NOTE] == []
        looked_at += count
    assert looked_at == len(SIGNALS)
