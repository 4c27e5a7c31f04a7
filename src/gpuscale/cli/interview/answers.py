"""User answers of `init`, by flags or on a terminal: parsed, with faults named by their flags."""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuscale.base.errors import ConfigError, Problem, UsageError
from gpuscale.cli.values_files import checked_values

if TYPE_CHECKING:
    from gpuscale.ops.install import Answers
    from gpuscale.ops.install.cluster import Detected, FoundWorkload
    from gpuscale.ops.providers import Provider

_FLAGS = {
    "spec.scale[0].workload": "--workload",
    "spec.scale[0].metrics": "--combined",
    "spec.scale[0].signal": "--signal",
    "spec.scale[0].of": "--of",
    "spec.scale[0].query": "--query",
    "spec.scale[0].target": "--target",
    "spec.scale[0].minReplicas": "--min-replicas",
    "spec.scale[0].maxReplicas": "--max-replicas",
    "spec.scale[0].wake": "--wake",
    "spec.namespace": "--namespace",
    "spec.image": "--image",
    "spec.prometheus": "--prometheus-url",
    "spec.metricsApi.source": "--source",
    "spec.metricsApi.scrapePods": "--scrape-pods",
    "spec.metricsApi.scrapeSelectedPods": "--scrape-selected-pods",
    "spec.metricsApi.otlp": "--otlp-client",
    "spec.metricsApi.resource": "--resource-metrics",
    "spec.metricsApi.rulesConfigMaps": "--rules-configmaps",
}
"""The flag behind each field that `init` writes from one."""
_WORDS = {
    "0 takes wake,": "0 takes --wake,",
    "minReplicas": "--min-replicas",
    "maxReplicas": "--max-replicas",
    "found target": "found --target",
    "without of,": "without --of,",
    "metricsApi.resource": "--resource-metrics",
    "metricsApi.scrapePods": "--scrape-pods",
    "metricsApi.scrapeSelectedPods": "--scrape-selected-pods",
    "metricsApi.otlp.enabled": "--otlp-client",
    "metricsApi.otlp": "--otlp-client",
    "metricsApi.source": "--source",
    "found scale[0]: ": "found ",
}
"""Words for fields in messages about several of them, and what a user of `init` knows them by."""


_WORDS_ALONE = re.compile(r"[A-Za-z0-9._-]+")


def read_signal(text: str) -> str:
    """Return the signal of a name.

    Raises:
        ValueError: there is none.
    """
    from gpuscale.base.words import closest
    from gpuscale.signals import SIGNALS

    if text in SIGNALS:
        return text
    meant = closest(text, SIGNALS)
    hint = f", such as {meant}" if meant else ""
    raise ValueError(f"found {text!r}, expected a signal{hint}; --signal list shows them all")


def read_combined(text: str) -> dict[str, Any]:
    """Return the combined metric that a text describes, as a values file has it.

    Raises:
        ValueError: it describes none.
    """
    name, _, rest = text.partition("=")
    parts = [each.rpartition(":") for each in rest.split(",")]
    if not name or not all(signal and threshold for signal, _, threshold in parts):
        example = "vllm_fullness=vllm-waiting:5,vllm-kv-cache:0.9"
        raise ValueError(f"found {text!r}, expected NAME=SIGNAL:THRESHOLD,... such as {example}")
    return {
        "combined": name,
        "parts": [
            {"signal": read_signal(signal), "threshold": read_number(threshold)}
            for signal, _, threshold in parts
        ],
    }


def read_selected_pods(text: str) -> dict[str, Any]:
    """Return the pods that a text selects, as a values file has them.

    Raises:
        ValueError: it selects none, or by other conditions than labels and their values.
    """
    from gpuscale.server.sources.feeds import pod_choice

    try:
        choice = pod_choice(text)
    except UsageError as error:
        raise ValueError(str(error)) from None
    labels = text.partition("/")[2].partition(":")[0]
    pairs = [] if labels == "*" else [each.partition("=") for each in labels.split(",")]
    if not all(key and equals and "=" not in value for key, equals, value in pairs):
        raise ValueError(f"found labels {labels}, expected KEY=VALUE, with commas between")
    return {
        **({} if choice.namespace == "*" else {"namespace": choice.namespace}),
        **({"matchLabels": {key: value for key, _, value in pairs}} if pairs else {}),
        "port": int(choice.port) if choice.port.isdigit() else choice.port,
        **({} if choice.path == "/metrics" else {"path": choice.path}),
        **({"https": True} if choice.scheme == "https" else {}),
    }


def read_service_account(text: str) -> dict[str, str]:
    """Return the service account that a text names.

    Raises:
        ValueError: it names none.
    """
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise ValueError(f"found {text!r}, expected NAMESPACE/NAME of a service account")
    return {"namespace": namespace, "name": name}


def read_number(text: str) -> float:
    """Return a number; a whole one as such.

    Raises:
        ValueError: it is none.
    """
    try:
        found = float(text)
    except ValueError:
        raise ValueError(f"found {text!r}, expected a number") from None
    return int(found) if found.is_integer() else found


def read_provider(text: str) -> "Provider":
    """Return the provider of a name.

    Raises:
        ValueError: there is none.
        PluginError: the plug-in that has the name can't be used.
    """
    from gpuscale.cli.interview.questions import unknown
    from gpuscale.ops.providers import NAMES, named

    found = named(text)
    if found is None:
        raise unknown(text, NAMES)
    return found


def read_workload(text: str) -> "FoundWorkload":
    """Return the workload that a text names.

    Raises:
        ValueError: it names none.
    """
    from gpuscale.ops.install.cluster import FoundWorkload

    kinds = {"deployment": "Deployment", "statefulset": "StatefulSet"}
    parts = text.split("/")
    kind = "Deployment"
    if parts[0].lower() in kinds and len(parts) > 1:
        kind = kinds[parts.pop(0).lower()]
    if len(parts) > 2 or not all(parts):
        raise ValueError(f"found {text!r}, expected [KIND/][NAMESPACE/]NAME")
    *namespaces, name = parts
    return FoundWorkload(kind, namespaces[0] if namespaces else "default", name)


def read_wake(text: str) -> str:
    """Return what wakes a workload: SOURCE/NAME or PromQL, which is looked at with the other values.

    Raises:
        ValueError: it looks like a wake source that was mistyped.
    """
    from gpuscale.base.words import closest
    from gpuscale.triggers import PRESETS

    source, slash, name = text.partition("/")
    meant = closest(source, PRESETS) if slash and source not in PRESETS else None
    if meant is not None and _WORDS_ALONE.fullmatch(name):
        raise ValueError(
            f"found {text!r}, expected SOURCE/NAME or PromQL; did you mean {meant}/{name}?"
        )
    return text


def checked_answers(answers: "Answers", found: "Detected") -> tuple[dict[str, Any], str, list[str]]:
    """Return the values that answers make: as data, as a file's text, and what is worth knowing about them.

    Raises:
        UsageError: they are no values, or ask for what lint says can't work; names the flags.
    """
    from gpuscale.base.documents.documents import dump_documents
    from gpuscale.ops.install import image_note, proposed

    data = proposed(answers, found)
    text = f"# Every other field has a default: gpuscale schema values\n{dump_documents([data])}"
    try:
        values, notes = checked_values(text, "the values")
    except ConfigError as error:
        raise UsageError("\n".join(map(_by_flag, error.problems))) from None
    note = image_note(values)
    return data, text, [*notes, *([note] if note else ())]


def check_so_far(answers: "Answers", found: "Detected") -> None:
    """Check what was said, whatever the answers to come may be.

    Raises:
        UsageError: no further answer can make it right; names the flags.
    """
    from gpuscale.ops.install import DEFAULT_MAX_REPLICAS, signal_of
    from gpuscale.ops.install.cluster import FoundWorkload
    from gpuscale.ops.providers import DEFAULT

    likely = replace(
        answers,
        workload=answers.workload or FoundWorkload("Deployment", "default", "workload"),
        provider=answers.provider or found.provider or DEFAULT,
    )
    if answers.min_replicas == 0 and answers.wake is None:
        likely = replace(likely, wake="vector(0)")
    if signal_of(answers).kind != "pods" and answers.of is None:
        likely = replace(likely, of="some")
    if answers.query is not None and answers.target is None:
        likely = replace(likely, target=1)
    if answers.max_replicas is None and answers.min_replicas is not None:
        likely = replace(likely, max_replicas=max(DEFAULT_MAX_REPLICAS, answers.min_replicas))
    checked_answers(likely, found)


def _by_flag(problem: Problem) -> str:
    """Return a fault with the flag that set a field, in place of a line in the future file."""
    field = problem.field or ""
    flag = next((flag for prefix, flag in _FLAGS.items() if field.startswith(prefix)), None)
    text = str(replace(problem, source="", line=None)).removeprefix(": ")
    if flag is not None:
        return f"{flag}: {text.removeprefix(f'{field}: ')}"
    text = text.removeprefix(f"{field}: ")
    for word, known in _WORDS.items():
        text = text.replace(word, known)
    return text
