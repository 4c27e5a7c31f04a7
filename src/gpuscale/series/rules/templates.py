"""Templates of alerts' labels and annotations: Go templates over a result's labels and value.

Served are the functions of text and numbers, and `graphLink` and `tableLink`. Refused by name when a rule
file is loaded are those that ask queries of their own (`query`, `first`, `value`, `label`, `strvalue`,
`sortByLabel`), those of times (`toTime`, `toDuration`, `now`) and `urlQueryEscape`, `args`, `externalURL`,
`pathPrefix`, and named templates.

Source: prometheus template/template.go, rules/alerting.go (v3.0.0).
"""

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote_plus

from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.golang.template import Dialect, Template, TemplateError, parse_template
from gpuscale.base.golang.template.functions import FUNCTIONS as OF_GO
from gpuscale.base.golang.template.functions import NOT_SERVED, Function
from gpuscale.base.golang.template.values import Value, kind
from gpuscale.base.regex import Pattern, compile_re2
from gpuscale.series.promql.functions.relabel import expand
from gpuscale.series.rules.humanize import (
    humanize,
    humanize1024,
    humanize_duration,
    humanize_percentage,
    humanize_timestamp,
)

_FIELDS = frozenset({"Labels", "ExternalLabels", "ExternalURL", "Value"})
_VARIABLES = (
    "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}"
    "{{$externalURL := .ExternalURL}}{{$value := .Value}}"
)
_MAX_CHARS = 8 * 1024
"""Of one label's or annotation's text; alerts are read by people."""
_WORD = re.compile(r"(?:^|(?<=\s))\S")


class AlertTemplate:
    """The template of a label or an annotation.

    Args:
        text: with actions between `{{` and `}}`.

    Raises:
        TemplateError: no template, or one with what is not served.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        # Most texts contain no action.
        self._template: Template | None = None
        if "{{" in text:
            self._template = parse_template(_VARIABLES + text, _FIELDS, _DIALECT)

    def expand(self, labels: Mapping[str, str], value: float, external_url: str) -> str:
        """Return the expanded text for one result; an error text if expansion fails.

        Args:
            labels: of the result, the metric's name among them.
            value: of the result.
            external_url: where users find this server.
        """
        if self._template is None:
            return self.text
        data: dict[str, Value] = {
            "Labels": _ZeroMap(labels),
            "ExternalLabels": _ZeroMap(),
            "ExternalURL": external_url,
            "Value": value,
        }
        try:
            return self._template.render(data)[:_MAX_CHARS]
        except TemplateError as error:
            return f"<error expanding template: {error}>"


class _ZeroMap(dict[str, str]):
    """A map that gives an empty text for missing keys, like Go's `missingkey=zero`."""

    def get(self, key: str, default: object = None) -> str:
        return super().get(key, "")


def graph_link(expression: str) -> str:
    """Return the path of an expression's graph in Prometheus' web interface."""
    return f"/graph?g0.expr={quote_plus(expression, safe='')}&g0.tab=0"


def table_link(expression: str) -> str:
    """Return the path of an expression's values in Prometheus' web interface."""
    return f"/graph?g0.expr={quote_plus(expression, safe='')}&g0.tab=1"


def _of_number(function: Callable[[float], str]) -> Function:
    def run(arguments: Sequence[Value]) -> str:
        value = arguments[0]
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise TemplateError(f"can't convert {kind(value)} to float")
        try:
            return function(float(value))
        except ValueError:
            raise TemplateError(f"can't convert {value!r} to float") from None

    return Function(run, 1, 1)


def _of_texts(count: int, function: Callable[..., Value]) -> Function:
    def run(arguments: Sequence[Value]) -> Value:
        for argument in arguments:
            if not isinstance(argument, str):
                raise TemplateError(f"wrong type for value; expected string; got {kind(argument)}")
        return function(*arguments)

    return Function(run, count, count)


def _title(text: str) -> str:
    return _WORD.sub(lambda match: match[0].upper(), text)


def _match(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text) is not None


def _compiled(pattern: str) -> Pattern:
    try:
        return compile_re2(pattern)
    except ValueError as error:
        raise TemplateError(str(error)) from None


def _strip_port(address: str) -> str:
    return _host_and_port(address)[0]


def _strip_domain(address: str) -> str:
    host, port = _host_and_port(address)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        host = host.split(".")[0]
        return f"{host}:{port}" if port else host
    return address


def _host_and_port(address: str) -> tuple[str, str]:
    """Return host and port; a text without port is returned whole, with an empty port."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], port
    return (host, port) if colon and ":" not in host else (address, "")


def _duration_s(text: str) -> float:
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise TemplateError(str(error)) from None


def _re_replace_all(pattern: str, replacement: str, text: str) -> str:
    compiled = _compiled(pattern)
    return compiled.sub(lambda match: expand(replacement, match, compiled), text)


FUNCTIONS: dict[str, Function] = {
    **OF_GO,
    "graphLink": _of_texts(1, graph_link),
    "humanize": _of_number(humanize),
    "humanize1024": _of_number(humanize1024),
    "humanizeDuration": _of_number(humanize_duration),
    "humanizePercentage": _of_number(humanize_percentage),
    "humanizeTimestamp": _of_number(humanize_timestamp),
    "match": _of_texts(2, _match),
    "parseDuration": _of_texts(1, _duration_s),
    "reReplaceAll": _of_texts(3, _re_replace_all),
    "safeHtml": _of_texts(1, str),
    "stripDomain": _of_texts(1, _strip_domain),
    "stripPort": _of_texts(1, _strip_port),
    "tableLink": _of_texts(1, table_link),
    "title": _of_texts(1, _title),
    "toLower": _of_texts(1, str.lower),
    "toUpper": _of_texts(1, str.upper),
}
"""All that templates can call."""
_DIALECT = Dialect(
    left="{{",
    right="}}",
    functions=FUNCTIONS,
    not_served=NOT_SERVED
    | {
        "args",
        "externalURL",
        "first",
        "label",
        "now",
        "pathPrefix",
        "query",
        "sortByLabel",
        "strvalue",
        "tmpl",
        "toDuration",
        "toTime",
        "urlQueryEscape",
        "value",
    },
)
