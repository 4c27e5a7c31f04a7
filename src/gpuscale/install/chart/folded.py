"""The alerts and dashboards as templates, folded from what each combination of options renders."""

from collections.abc import Callable, Sequence

from gpuscale.install.alerts.groups import alert_groups, alert_settings
from gpuscale.install.boards.catalogue import dashboard_objects
from gpuscale.install.chart import dimensions as d
from gpuscale.install.chart.fold import Case, Folder
from gpuscale.install.chart.placeholders import expressed, scalar
from gpuscale.install.common import Object
from gpuscale.install.values import Values

_HEAD = "{{- /* Made by `python -m gpuscale.install.chart`. */}}"


def alerts_template() -> str:
    """Return the named template of the groups of alert rules."""
    options = (d.AGENT, d.HONOR, d.API, d.EXTERNAL_NAME)
    (lines,) = _documents(options, lambda values: [_groups(values)])
    groups = lines[lines.index("groups:") :]
    return "\n".join([_HEAD, '{{- define "gpuscale.alertGroups" }}', *groups, "{{- end }}", ""])


def dashboards_template() -> str:
    """Return the template of the dashboards' ConfigMaps."""
    options = (d.DASHBOARDS, d.DASHBOARD_NAMESPACE, d.HONOR, d.API, d.EXTERNAL_NAME)
    found = _documents(options, dashboard_objects)
    return "\n".join([_HEAD, *(line for lines in found for line in lines), ""])


def _groups(values: Values) -> Object:
    groups = alert_groups(alert_settings(values))
    return {"kind": "Alerts", "metadata": {"name": "alerts"}, "groups": groups}


def _documents(
    options: tuple[d.Option, ...], build: Callable[[Values], list[Object]]
) -> list[list[str]]:
    """Return the lines of each object, in the order of the objects."""
    folder = Folder([option.dimension for option in options], scalar, expressed)
    rendered = [(indices, build(values)) for indices, values in d.combinations(options)]
    names = list(dict.fromkeys(_identity(body) for _, bodies in rendered for body in bodies))
    return [
        folder.document([Case(indices, _find(bodies, name)) for indices, bodies in rendered])
        for name in names
    ]


def _identity(body: Object) -> tuple[str, str]:
    return body["kind"], body["metadata"]["name"]


def _find(bodies: Sequence[Object], name: tuple[str, str]) -> Object | None:
    return next((body for body in bodies if _identity(body) == name), None)
