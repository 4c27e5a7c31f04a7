"""KubeAI: Models, whose pods it makes and scales by itself; their GPUs are set where it is installed.

Source: kubeai v0.21 api/k8s/v1/model_types.go (ModelSpec, CEL rules).
"""

from collections.abc import Iterator

from gpuscale.ops.lint.operators.made import Making, limits_of, name_of
from gpuscale.ops.lint.operators.refusals import Refusal, bounds
from gpuscale.ops.lint.parts import Part

_MODEL = "kubeai.org/v1", "Model"
_MOST_CHARACTERS = 40


def model(whole: Part) -> Making:
    """Yield the limits between which it scales."""
    spec, name = whole.at("spec"), name_of(whole)
    least, most = spec.whole("minReplicas") or 0, spec.whole("maxReplicas")
    if spec.at("autoscalingDisabled").data is True or most is None or least >= most:
        return
    yield limits_of(spec, _MODEL, name, least=0)


def refused_model(whole: Part) -> Iterator[Refusal]:
    """Yield what the schema refuses."""
    if len(name_of(whole)) > _MOST_CHARACTERS:
        yield Refusal(whole.at("metadata", "name"), f"at most {_MOST_CHARACTERS} characters")
    yield from bounds(whole.at("spec"), "minReplicas", "maxReplicas")
