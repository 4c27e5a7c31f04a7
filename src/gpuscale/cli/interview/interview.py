"""The questions of `init`, in their order: what to scale, on what, how far, and what it runs on.

What a flag has said already is not asked for, and an answer that can't be right is asked for again.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuscale import __version__
from gpuscale.cli.interview.answers import (
    check_so_far,
    read_number,
    read_provider,
    read_wake,
    read_workload,
)
from gpuscale.cli.interview.questions import Question, ask

if TYPE_CHECKING:
    from gpuscale.ops.install import Answers
    from gpuscale.ops.install.cluster import Detected

_SIGNALS = {
    "gpu-utilization": "how busy the GPUs are; the usual choice",
    "gpu-memory": "how much of the GPUs' memory is used",
    "graphics-engine": "how busy their engines are; for Hopper or newer, and for MIG",
    "gpu-share": "how much of its GPUs a container uses; for shared GPUs",
    "ack-sm-utilization": "as Alibaba's exporter measures it for each process",
    "ack-memory-ratio": "as Alibaba's exporter measures it, of what was allocated",
}
_AUTOSCALERS = {
    "hpa": "Kubernetes' own HorizontalPodAutoscaler",
    "keda": "KEDA, by a ScaledObject on gpuscale's scaler",
}
_SOURCES = {
    "prometheus": "by queries, a scrape interval old",
    "streams": "from the node agents themselves, within a second or two, and without a Prometheus",
}
_SHOWN_WORKLOADS = 9
_IMAGE = f"registry.example.com/gpuscale:{__version__}"
IMAGE_HINT = f"build and push it with: make image IMAGE={_IMAGE} PUSH=1"
"""What to do who has no image yet."""


def interview(answers: "Answers", found: "Detected") -> "Answers":
    """Return the answers with what was asked for on the terminal.

    Args:
        answers: what flags said.
        found: what the cluster shows; it makes proposals, and questions needless.

    Raises:
        UsageError: what flags said can't be right.
        NoAnswerError: the input ended.
        KeyboardInterrupt: Ctrl-C.
    """
    check_so_far(answers, found)
    for step in _STEPS:
        answers = step(answers, found)
    return answers


def _asked(
    question: Question,
    name: str,
    read: Callable[[str], Any],
    answers: "Answers",
    found: "Detected",
) -> "Answers":
    """Return the answers with one more, asked for until it fits the earlier ones."""

    def checked(text: str) -> "Answers":
        said: Answers = replace(answers, **{name: read(text)})
        check_so_far(said, found)
        return said

    return ask(question, checked)


def _workload(answers: "Answers", found: "Detected") -> "Answers":
    if answers.workload is not None:
        return answers
    explanation = ["What to scale: a Deployment's name, or KIND/NAMESPACE/NAME"]
    names = [f"{each.kind.lower()}/{each.namespace}/{each.name}" for each in found.workloads]
    if names:
        explanation.append("these ask for GPUs:")
        explanation += [f"  {name}" for name in names[:_SHOWN_WORKLOADS]]
    if len(names) > _SHOWN_WORKLOADS:
        explanation.append(f"  and {len(names) - _SHOWN_WORKLOADS} more")
    question = Question("Workload", names[0] if names else None, explanation)
    return _asked(question, "workload", read_workload, answers, found)


def _provider(answers: "Answers", found: "Detected") -> "Answers":
    from gpuscale.ops.providers import DEFAULT, every

    if answers.provider is not None or found.provider is not None:
        return answers
    choices = {each.name: each.title for each in every()}
    question = Question("Provider", DEFAULT.name, ["Where the cluster runs"], choices)
    return _asked(question, "provider", read_provider, answers, found)


def _autoscaler(answers: "Answers", found: "Detected") -> "Answers":
    if answers.autoscaler is not None:
        return answers
    explanation = ["What scales" + (" (the cluster has KEDA)" if found.has_keda else "")]
    question = Question("Autoscaler", "hpa", explanation, _AUTOSCALERS)
    return _asked(question, "autoscaler", str, answers, found)


def _signal(answers: "Answers", found: "Detected") -> "Answers":
    from gpuscale.ops.install import DEFAULT_SIGNAL
    from gpuscale.signals import by_family

    if answers.signal is not None or answers.query is not None or answers.combined is not None:
        return answers
    choices: dict[str, str] = {
        name: f"{_SIGNALS.get(name, each.what)} ({each.unit})"
        for _, signals in by_family()
        for name, each in signals.items()
    }
    explanation = ["What to scale on; for LLMs that is what waits, not how busy the GPUs are"]
    question = Question("Signal", DEFAULT_SIGNAL, explanation, choices)
    return _asked(question, "signal", str, answers, found)


def _of(answers: "Answers", found: "Detected") -> "Answers":
    from gpuscale.ops.install import signal_of

    names = signal_of(answers).family.names if signal_of(answers).kind != "pods" else ""
    is_other = answers.query is not None or answers.combined is not None
    if answers.of is not None or is_other or not names:
        return answers
    question = Question("Name", None, [f"The name of {names}"])
    return _asked(question, "of", str, answers, found)


def _target(answers: "Answers", found: "Detected") -> "Answers":
    from gpuscale.ops.install import DEFAULT_SIGNAL, signal_of

    if answers.target is not None or answers.combined is not None:
        return answers
    signal, name = signal_of(answers), answers.signal or DEFAULT_SIGNAL
    explanation = ["What each pod should have: more pods come above it, and fewer stay below it"]
    if answers.query is not None:
        question = Question("Target of the query, for each pod", None, explanation)
        return _asked(question, "target", read_number, answers, found)
    if signal.why:
        explanation.append(f"{signal.target:g}: {signal.why}")
    question = Question(f"Target of {name} ({signal.unit})", f"{signal.target:g}", explanation)
    return _asked(
        question, "target", lambda text: read_number(text.removesuffix(signal.unit)), answers, found
    )


def _min_replicas(answers: "Answers", found: "Detected") -> "Answers":
    from gpuscale.ops.install import DEFAULT_MIN_REPLICAS

    if answers.min_replicas is not None:
        return answers
    explanation = ["0 stops it while nothing is asked of it; something has to wake it then"]
    question = Question("Fewest pods", str(DEFAULT_MIN_REPLICAS), explanation)
    return _asked(question, "min_replicas", _whole_number, answers, found)


def _wake(answers: "Answers", found: "Detected") -> "Answers":
    """Ask what wakes a workload that may have no pod."""
    from gpuscale.triggers import PRESETS

    if answers.wake is not None or answers.min_replicas != 0:
        return answers
    explanation = [
        "What wakes it while it has no pod: PromQL that is above 0 while there is something to do,",
        "or SOURCE/NAME, where SOURCE is one of these and NAME its object:",
        *(f"  {name}/NAME  {each.what}" for name, each in PRESETS.items()),
    ]
    return _asked(Question("Wakes it", None, explanation), "wake", read_wake, answers, found)


def _max_replicas(answers: "Answers", found: "Detected") -> "Answers":
    from gpuscale.ops.install import DEFAULT_MAX_REPLICAS

    if answers.max_replicas is not None:
        return answers
    most = max(DEFAULT_MAX_REPLICAS, answers.min_replicas or 1)
    question = Question("Most pods", str(most))
    return _asked(question, "max_replicas", _whole_number, answers, found)


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"found {text!r}, expected a whole number") from None


def _image(answers: "Answers", found: "Detected") -> "Answers":
    if answers.image is not None:
        return answers
    explanation = [
        "The image of the node agent and the metrics API, which nodes pull from a registry of yours;",
        IMAGE_HINT,
    ]
    question = Question("Image, as REPOSITORY:TAG", None, explanation)
    return _asked(question, "image", str, answers, found)


def _presence(answers: "Answers", found: "Detected") -> "Answers":
    """Ask about an image without a registry, which may be on the nodes already."""
    from gpuscale.ops.install import has_registry, parse_image

    repository, _ = parse_image(answers.image or _IMAGE)
    if answers.is_image_present or has_registry(repository):
        return answers
    explanation = [
        f"{answers.image} names no registry, so nodes can't pull it.",
        "Does every node have it already, as after `kind load docker-image`?",
    ]
    question = Question("On every node (yes, no)", "no", explanation)
    return _asked(question, "is_image_present", _is_yes, answers, found)


def _is_yes(text: str) -> bool:
    if text.lower() not in ("y", "yes", "n", "no"):
        raise ValueError(f"found {text!r}, expected yes or no")
    return text.lower().startswith("y")


def _namespace(answers: "Answers", found: "Detected") -> "Answers":
    if answers.namespace is not None:
        return answers
    explanation = ["Where the node agent and the metrics API run; it is made if it isn't there"]
    question = Question("Namespace", "gpuscale", explanation)
    return _asked(question, "namespace", str, answers, found)


def _source(answers: "Answers", found: "Detected") -> "Answers":
    from gpuscale.ops.install import source_for

    if answers.source is not None or answers.wake:
        return answers
    explanation = ["How the metrics API gets its values"]
    question = Question("Source", source_for(answers, found), explanation, _SOURCES)
    return _asked(question, "source", str, answers, found)


def _resource(answers: "Answers", found: "Detected") -> "Answers":
    from gpuscale.ops.install import serves_resource

    if answers.serves_resource is not None or not serves_resource(answers, found):
        return answers
    explanation = ["No metrics-server was found. Serve CPU and memory too, for `kubectl top`?"]
    question = Question("CPU and memory (yes, no)", "yes", explanation)
    return _asked(question, "serves_resource", _is_yes, answers, found)


def _team_rules(answers: "Answers", found: "Detected") -> "Answers":
    from gpuscale.ops.install import team_rules

    proposal = team_rules(answers, found)
    if answers.team_rules is not None or not proposal:
        return answers
    explanation = ["ConfigMaps with rules of teams were found. Labels of those to read, - for none"]
    question = Question("Labels", proposal, explanation)
    return _asked(question, "team_rules", lambda text: "" if text == "-" else text, answers, found)


_STEPS = (
    _workload,
    _provider,
    _autoscaler,
    _signal,
    _of,
    _target,
    _min_replicas,
    _wake,
    _max_replicas,
    _image,
    _presence,
    _namespace,
    _source,
    _resource,
    _team_rules,
)
