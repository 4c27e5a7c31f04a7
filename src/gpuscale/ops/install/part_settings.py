"""The `settings` of parts in a values file: keys of the settings file that the chart doesn't set."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from gpuscale.agent.exporter import settings as agent
from gpuscale.base.documents.documents import Path, dotted
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.flags import FileText, Flag
from gpuscale.base.settings_file import settings_schema, texts_of
from gpuscale.ops.install.helm.rendering import chart_text
from gpuscale.ops.install.pods import Object
from gpuscale.server.metricsapi import settings as metrics_api
from gpuscale.server.scaler import settings as scaler

_HELPERS = ("_agent-access.tpl", "_collected.tpl", "_prometheus-auth.tpl", "_scraping.tpl")
_LEFT = frozenset({"metrics-relist-interval", "metrics-max-age"})
"""The chart gives these only where a user does not."""
_OWN = "is the installation's own"
_NO_FILE = "names a file, which only the pod could read"
_ELSEWHERE = {
    "print-preset": "ends the pod",
    "federation": _NO_FILE,
    "remote-write-config": _NO_FILE,
    "config-file": _NO_FILE,
    "configmap-data": "asks for a ConfigMap, which the pods may not read; agent.customMetrics may be one",
    "pod-resources-kubelet-socket": "is where agent.podResourcesPath is mounted",
    "fake-gpus": "counts only without --gpu, which is the installation's own",
    "web-systemd-socket": "asks systemd, which starts no pods",
}
"""Why the other flags that are not left to users can't be."""


def _open_flags(flags: Mapping[str, Flag], template: str) -> dict[str, Flag]:
    """Return the flags that the chart leaves to users."""
    text = "".join(chart_text(f"templates/{name}") for name in (template, *_HELPERS))
    taken = {*re.findall(r"--([a-z0-9-]+)\b", text), *_ELSEWHERE} - _LEFT
    return {name: flag for name, flag in flags.items() if name not in taken}


_AGENT = _open_flags(agent.FLAGS, "node-agent.yaml")
_METRICS_API = _open_flags(metrics_api.FLAGS, "metrics-api-pods.yaml")
_SCALER = _open_flags(scaler.FLAGS, "scaler.yaml")


_Read = Callable[[Object, Mapping[str, FileText]], object]
"""Takes settings as a values file has them, and their texts by flag."""


def _checked(
    all_flags: Mapping[str, Flag], open_flags: Mapping[str, Flag], read: _Read
) -> Callable[[Object], Object]:
    def check(data: Object) -> Object:
        faults: list[str] = []

        def note(path: Path, found: str, expected: str) -> None:
            faults.append(f"{dotted(path)}: found {found}, expected {expected}")

        texts = dict(texts_of(data, all_flags, note))
        faults += [
            f"{all_flags[name].key}: found it, expected nothing: --{name} {_ELSEWHERE.get(name, _OWN)}"
            for name in texts
            if name not in open_flags
        ]
        if not faults:
            file = {name: FileText(each, all_flags[name].key) for name, each in texts.items()}
            try:
                read(data, file)
            except GpuscaleError as error:
                faults += str(error).splitlines()
        if faults:
            raise ValueError("; ".join(faults))
        return data

    return check


def _of_server(
    read: Callable[[Mapping[str, Sequence[str]], Mapping[str, FileText]], object],
) -> _Read:
    """Return a reader that combines the given settings with the chart's flags they depend on."""

    def read_(data: Object, file: Mapping[str, FileText]) -> None:
        source = "streams" if data.get("streams") else "prometheus"
        read({"preset": ("on",), "source": (source,)}, file)

    return read_


def _read_agent(_: Object, file: Mapping[str, FileText]) -> None:
    agent.read_settings({"kubernetes": ["true"]}, {}, "node", file)


AgentSettings = Annotated[
    Object,
    AfterValidator(_checked(agent.FLAGS, _AGENT, _read_agent)),
    WithJsonSchema(settings_schema(_AGENT)),
]
MetricsApiSettings = Annotated[
    Object,
    AfterValidator(
        _checked(metrics_api.FLAGS, _METRICS_API, _of_server(metrics_api.read_settings))
    ),
    WithJsonSchema(settings_schema(_METRICS_API)),
]
ScalerSettings = Annotated[
    Object,
    AfterValidator(_checked(scaler.FLAGS, _SCALER, _of_server(scaler.read_settings))),
    WithJsonSchema(settings_schema(_SCALER)),
]
