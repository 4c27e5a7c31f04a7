"""pydantic's errors as problems in plain words, with line numbers.

pydantic's own texts are for programmers: "String should match pattern '^[a-z]...'".
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuscale.base.documents.documents import Document, Path
from gpuscale.base.errors import Problem
from gpuscale.base.golang.durations import MAX_DURATION_MS, format_duration
from gpuscale.base.words import closest

_LONGEST_SHOWN = 60
_MOST_LISTED = 12

LABEL_PATTERN = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
SUBDOMAIN_PATTERN = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
LABEL_VALUE_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"
_EXPANDER = "(least-waste|most-pods|least-nodes|price|priority|random)"
EXPANDERS_PATTERN = f"^{_EXPANDER}(,{_EXPANDER})*$"
MIG_PATTERN = r"^[1-7]g\.[0-9]+gb(\+(me|gfx|me\.all))?$"
METRIC_PATTERN = r"^[a-zA-Z_:][a-zA-Z0-9_:]*$"
RELEASE_PATTERN = r"^v?[0-9]{1,3}\.[0-9]{1,4}([.+-].*)?$"
PATTERNS: Mapping[str, str] = {
    LABEL_PATTERN: ("a name of lower-case letters, digits and '-', such as vision-api"),
    SUBDOMAIN_PATTERN: ("a name of lower-case letters, digits, '-' and '.', such as vision-api"),
    LABEL_VALUE_PATTERN: "the value of a label, such as g6.xlarge or Standard_NC24ads_A100_v4",
    r"^([0-9]+|[0-9]{1,2}%|100%)$": "a number of nodes or a percentage up to 100%, such as 1 or 10%",
    EXPANDERS_PATTERN: (
        "least-waste, most-pods, least-nodes, price, priority or random, or several with commas"
    ),
    MIG_PATTERN: "a MIG profile such as 1g.5gb or 2g.10gb+me",
    METRIC_PATTERN: "the name of a metric, such as http_requests_total",
    RELEASE_PATTERN: "a Kubernetes version such as 1.36 or v1.36.3, in quotes",
    r"^[^\s\"'`$\\{}]+$": "text without blanks, quotes, braces, '$', '`' and '\\'",
    r"^[A-Za-z0-9_./=!,() -]+$": "labels as kubectl takes them, such as team=ml,tier!=test",
    r"^[A-Za-z0-9][A-Za-z0-9_./-]*$": "the key of a label, such as grafana_dashboard",
    r"^[^\x00-\x1f]+$": "text on one line",
    r"^[A-Za-z0-9-]+$": "a name of letters, digits and '-', such as X-Scope-OrgID",
    r"^[A-Za-z0-9._-]+$": "a key of letters, digits, '.', '_' and '-', such as tls.crt",
    r"^sha256:[0-9a-f]{64}$": "sha256: and 64 digits from 0 to f, as in the digest of an image",
    r"^[a-z][a-z0-9]*$": "a name of lower-case letters and digits that begins with a letter, such as gpu1",
    r"^[A-Za-z0-9_./=, -]+$": "NAMESPACE or NAMESPACE/LABEL=VALUE, separated by commas",
    r"^[1-9][0-9]*(Mi|Gi)$": "a size such as 512Mi or 1Gi",
    r"^https?://[^\s\"'`$\\{},]+$": "a URL such as http://alertmanager.monitoring:9093",
    r"^[^\s,/]+$": "the name of a metric, in which `*` is any text, such as http_*",
    r"^[a-zA-Z_:][a-zA-Z0-9_:.-]*$": "the name of a metric, such as vllm_num_requests_running",
    r"^[A-Za-z0-9:/.\[\]-]+$": "NAMESPACE/SERVICE:PORT, such as monitoring/adapter:443, or https://HOST",
    r"^[0-9A-Za-z*,/?#-]+( +[0-9A-Za-z*,/?#-]+){4}$": "a cron expression of five fields, such as 0 8 * * 1-5",
    r"^[A-Za-z0-9_+/-]+$": "a time zone such as Europe/Berlin",
    r"^[0-9A-Za-z.-]+$": "a tenant's UUID or domain, such as contoso.onmicrosoft.com",
    r"^[\w\s:/.\-]+$": "a scope such as https://monitor.azure.com//.default",
    r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$": "a UUID",
    r"^[^/\s\"'{}]+/[^/\s\"'{}]+/[^/\s\"'{}]+$": (
        "NAMESPACE/TYPE/NAME of a resource, such as Microsoft.ServiceBus/namespaces/jobs"
    ),
    r"^[^\"'{}]+$": "text without quotes and braces",
    r"^[^\"{}]+$": "text without double quotes and braces, such as EntityName eq 'jobs'",
    r"^[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}$": "hours:minutes:seconds, such as 0:5:0",
    r"^[a-z0-9]+$": "a region's name of lower-case letters and digits, such as westeurope",
    r"^/subscriptions/[^/\s?#]+/resource[gG]roups/[^/\s?#]+/providers/[^\s?#]+$": (
        "the id of a resource, /subscriptions/ID/resourceGroups/NAME/providers/..."
    ),
    r"^/[A-Za-z0-9_.~/?=&%-]*$": "a path such as /metrics",
    r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$": (
        "the key of a label, such as app.kubernetes.io/name"
    ),
    r"^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$": (
        "the value of a label: letters, digits, '-', '_' and '.', such as vision-api"
    ),
    r"^[a-zA-Z_][a-zA-Z0-9_]*$": "a name of letters, digits and '_', such as fullest_queue",
    r"^[A-Za-z0-9_./-]+$": "the name of an attribute, such as k8s.pod.name",
    r"^[A-Z]{3}$": "a currency of three capital letters, such as USD",
}
"""What the patterns of our models ask for, with an example."""

_PLAIN: Mapping[str, str] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "string_type": "text",
    "tuple_type": "a list",
}
"""What was expected, by pydantic's name of the error; the others have a limit or names to report."""
_LIMITS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
"""Where pydantic reports the limit, and the words before it."""
_ABSENT = "this field is required"
REFUSED = "refused"
"""Type of an error whose text says all, what was found too."""


def validation_problems(
    document: Document,
    errors: Sequence[Mapping[str, Any]],
    schema: Callable[[], Mapping[str, Any]],
) -> tuple[Problem, ...]:
    """Return the problems behind `ValidationError.errors()`.

    Args:
        document: what was validated.
        errors: pydantic's.
        schema: gives the model's JSON schema, for the names of fields; called where one is unknown.

    Returns:
        One for each error, in the order of lines.
    """
    paths = [_place(document, error) for error in errors]
    problems = (
        _problem(document, path, error, schema)
        for path, error in zip(paths, errors, strict=True)
        if not (error["type"] == "too_short" and _has_below(path, paths))
    )
    return tuple(sorted(problems, key=lambda problem: problem.line or 0))


def _problem(
    document: Document,
    path: Path,
    error: Mapping[str, Any],
    schema: Callable[[], Mapping[str, Any]],
) -> Problem:
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind == "extra_forbidden":
        known = sorted(_fields(schema(), document.data, path[:-1]))
        return document.problem(path, "no such field here", fix=_meant(str(path[-1]), known))
    if kind == "missing":
        return document.problem(path, _ABSENT)
    if kind == REFUSED:
        return document.problem(path, str(error["msg"]))
    if kind == "union_tag_not_found":
        return document.problem((*path, context["discriminator"].strip("'")), _ABSENT)
    value = _value(document, path)
    if kind == "union_tag_invalid":
        path = (*path, context["discriminator"].strip("'"))
        value = _value(document, path)
    if kind in {"literal_error", "union_tag_invalid"}:
        names = re.findall(r"'([^']*)'", context.get("expected", context.get("expected_tags")))
        expected = f"one of {', '.join(names)}" if len(names) > 1 else names[0]
        meant = closest(str(value), names) if len(names) > 1 else None
        fix = f"did you mean {meant}?" if meant else None
        return document.problem(path, expected, found=_shown(value), fix=fix)
    if kind == "value_error":
        text = str(error["msg"]).removeprefix("Value error, ")
        found = None if "found " in text else _shown(value)
        return document.problem(path, text, found=found)
    is_text = kind == "string_type" and isinstance(value, bool | int | float)
    return document.problem(
        path,
        _expected(kind, context) or str(error["msg"]),
        found=_shown(value),
        fix="put it into quotes" if is_text else None,
    )


def _expected(kind: str, context: Mapping[str, Any]) -> str | None:
    """Return what was expected, for pydantic's error type; None for a type our models don't use."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        limit = context[key]
        # Durations are milliseconds by the time that they are compared; no other field has this limit.
        shown = format_duration(limit) if limit == MAX_DURATION_MS else f"{limit:.15g}"
        return f"{words} {shown}"
    match kind:
        case "multiple_of":
            return _of_steps(float(context["multiple_of"]))
        case "string_pattern_mismatch":
            return PATTERNS.get(context["pattern"], f"text that matches {context['pattern']}")
        case "string_too_long":
            return f"at most {context['max_length']} characters"
        case "string_too_short":
            least = context["min_length"]
            return "text that is not empty" if least == 1 else f"at least {least} characters"
        case "too_short":
            return f"at least {_items(context['min_length'])}"
        case "too_long":
            return f"at most {_items(context['max_length'])}"
        case _:
            return None


def _of_steps(step: float) -> str:
    decimals = f"{step:.9f}".rstrip("0").partition(".")[2]
    if set(decimals) == {"0", "1"} or decimals == "1":
        return f"a number with at most {len(decimals)} decimals"
    return f"a multiple of {step:g}"


def _items(count: int) -> str:
    return f"{count} item{'' if count == 1 else 's'}"


def _meant(name: str, known: Sequence[str]) -> str | None:
    """Return the field that was probably meant, or all fields if they are few."""
    meant = closest(name, known, cutoff=0.6)
    if meant is not None:
        return f"did you mean {meant}?"
    return f"the fields here are {', '.join(known)}" if 0 < len(known) <= _MOST_LISTED else None


# Where it stands


def _place(document: Document, error: Mapping[str, Any]) -> Path:
    """Return an error's path in the data, without the union tags that pydantic adds."""
    location = error["loc"]
    path: list[str | int] = []
    value: object = document.data
    for index, part in enumerate(location):
        is_last = index == len(location) - 1
        if _holds(value, part):
            value = value[part]  # type: ignore[index]
        elif not (is_last and error["type"] == "missing"):
            continue
        path.append(part)
    return tuple(path)


def _holds(value: object, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)


def _has_below(path: Path, paths: Sequence[Path]) -> bool:
    return any(len(other) > len(path) and other[: len(path)] == path for other in paths)


def _value(document: Document, path: Path) -> object:
    value = document.data
    for part in path:
        value = value[part]  # type: ignore[index]
    return value


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            text = repr(value)
            return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


# Which fields there are


def _fields(schema: Mapping[str, Any], data: object, path: Path) -> set[str]:
    """Return a mapping's field names, from the model's JSON schema."""
    nodes = list(_resolved(schema, schema, data))
    for part in path:
        data = data[part] if _holds(data, part) else None  # type: ignore[index]
        below = [each for node in nodes for each in _below(node, part)]
        nodes = [each for node in below for each in _resolved(schema, node, data)]
    return {name for node in nodes for name in node.get("properties", ())}


def _below(node: Mapping[str, Any], part: str | int) -> Iterator[Mapping[str, Any]]:
    if isinstance(part, int):
        inside = node.get("items")
    else:
        inside = node.get("properties", {}).get(part, node.get("additionalProperties"))
    if isinstance(inside, dict):
        yield inside


def _resolved(
    schema: Mapping[str, Any], node: Mapping[str, Any], data: object
) -> Iterator[Mapping[str, Any]]:
    """Return a node's schemas, with references resolved; of alternatives, those the data may match."""
    if "$ref" in node:
        yield from _resolved(schema, schema["$defs"][node["$ref"].rpartition("/")[2]], data)
        return
    alternatives = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    if not alternatives:
        yield node
    for each in alternatives:
        for found in _resolved(schema, each, data):
            if _may_be(found, data):
                yield found


def _may_be(node: Mapping[str, Any], data: object) -> bool:
    """Return whether data is a mapping with the constants and required keys of a schema."""
    if not isinstance(data, dict):
        return True
    fixed = {
        name: each["const"] for name, each in node.get("properties", {}).items() if "const" in each
    }
    return all(data.get(name, value) == value for name, value in fixed.items())
