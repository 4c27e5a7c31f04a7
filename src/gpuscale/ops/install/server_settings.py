"""Settings of the servers in a values file: the keys of their settings file, without what the chart sets."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

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
_ELSEWHERE = frozenset({"print-preset", "federation", "remote-write-config"})
"""One ends the pod; the others name files, which only the pod could read."""


def _open_flags(flags: Mapping[str, Flag], template: str) -> dict[str, Flag]:
    """Return the flags that the chart's arguments leave to users."""
    text = "".join(chart_text(f"templates/{name}") for name in (template, *_HELPERS))
    taken = set(re.findall(r"--([a-z0-9-]+)\b", text)) - _LEFT | _ELSEWHERE
    return {name: flag for name, flag in flags.items() if name not in taken}


_METRICS_API = _open_flags(metrics_api.FLAGS, "metrics-api-pods.yaml")
_SCALER = _open_flags(scaler.FLAGS, "scaler.yaml")


def _checked(
    all_flags: Mapping[str, Flag],
    open_flags: Mapping[str, Flag],
    read: Callable[[Mapping[str, Sequence[str]], Mapping[str, FileText]], object],
) -> Callable[[Object], Object]:
    def check(data: Object) -> Object:
        faults: list[str] = []

        def note(path: Path, found: str, expected: str) -> None:
            faults.append(f"{dotted(path)}: found {found}, expected {expected}")

        texts = dict(texts_of(data, all_flags, note))
        faults += [
            f"{all_flags[name].key}: found it, expected nothing: --{name} is the installation's own"
            for name in texts
            if name not in open_flags
        ]
        if not faults:
            try:
                source = "streams" if data.get("streams") else "prometheus"
                file = {name: FileText(each, all_flags[name].key) for name, each in texts.items()}
                read({"preset": ("on",), "source": (source,)}, file)
            except GpuscaleError as error:
                faults += str(error).splitlines()
        if faults:
            raise ValueError("; ".join(faults))
        return data

    return check


MetricsApiSettings = Annotated[
    Object,
    AfterValidator(_checked(metrics_api.FLAGS, _METRICS_API, metrics_api.read_settings)),
    WithJsonSchema(settings_schema(_METRICS_API)),
]
ScalerSettings = Annotated[
    Object,
    AfterValidator(_checked(scaler.FLAGS, _SCALER, scaler.read_settings)),
    WithJsonSchema(settings_schema(_SCALER)),
]
