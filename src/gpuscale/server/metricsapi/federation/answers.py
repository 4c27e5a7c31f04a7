"""Answers of federation members, checked against the API: an invalid one counts as no data.

Only fields of the API go on, as they were understood here, so that nothing reaches an HPA that was not read.

Source: k8s.io/metrics v0.36 pkg/apis/custom_metrics (v1beta1, v1beta2) and external_metrics/v1beta1.
"""

import json
import re
from collections.abc import Mapping, Sequence
from types import NoneType

from gpuscale.base.errors import UpstreamError
from gpuscale.base.objects.metric_values import NO_TIME_MS, items_of, milli_of, time_ms
from gpuscale.base.words import printable
from gpuscale.kube import mapping_of, text_of, texts_of
from gpuscale.server.metricsapi.wire.bodies import Body
from gpuscale.server.metricsapi.wire.paths import ALL, CustomTarget, ExternalTarget
from gpuscale.server.metricsapi.wire.statuses import Status

MAX_ITEMS = 50_000
_MAX_MESSAGE = 1024
_CUSTOM_FIELDS = (
    *("describedObject", "metric", "metricName", "timestamp"),
    *("window", "windowSeconds", "value", "selector"),
)
_EXTERNAL_FIELDS = ("metricName", "metricLabels", "timestamp", "window", "windowSeconds", "value")
_SHAPES = {
    **dict.fromkeys(("metric", "metricLabels", "selector"), (dict, NoneType)),
    **dict.fromkeys(("window", "windowSeconds"), (int, NoneType)),
    **dict.fromkeys(("kind", "namespace", "uid", "apiVersion", "timestamp"), (str, NoneType)),
}
_PLAIN = re.compile(r"-?[0-9]{1,12}m?")
_OBJECT_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion")


class NotOfTheApiError(UpstreamError):
    """A member's answer does not match the API."""


def parsed(content_type: str, body: bytes) -> Mapping[str, object]:
    """Return the JSON object of an answer.

    Raises:
        NotOfTheApiError: it is no JSON object.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json":
        raise NotOfTheApiError(f"found the Content-Type {_short(kind)!r}, expected JSON")
    try:
        found = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise NotOfTheApiError("found something that is no JSON") from error
    if not isinstance(found, dict):
        raise NotOfTheApiError("found JSON that is no object")
    return found


def values_of(
    group_version: str, target: CustomTarget | ExternalTarget, answer: Mapping[str, object]
) -> tuple[Body, int]:
    """Return the MetricValueList to send to the client, and its number of values.

    Raises:
        NotOfTheApiError: it is no list of this metric's values.
    """
    is_custom = isinstance(target, CustomTarget)
    kind = "MetricValueList" if is_custom else "ExternalMetricValueList"
    _check_kind(answer, kind, group_version)
    try:
        items = items_of(answer) if answer.get("items") is not None else ()
        if len(items) > MAX_ITEMS:
            raise NotOfTheApiError(f"found {len(items)} values, expected at most {MAX_ITEMS}")
        listed = [_custom(target, each) if is_custom else _external(target, each) for each in items]  # type: ignore[arg-type]
    except ValueError as error:
        raise NotOfTheApiError(str(error)) from error
    return {
        "kind": kind,
        "apiVersion": group_version,
        "metadata": {},
        "items": listed,
    }, len(listed)


def resources_of(group_version: str, answer: Mapping[str, object]) -> list[Body]:
    """Return the resources of an APIResourceList; those that can't be read are left out.

    Raises:
        NotOfTheApiError: it is no such list.
    """
    if answer.get("kind") != "APIResourceList" or answer.get("groupVersion") != group_version:
        raise NotOfTheApiError(f"found no APIResourceList of {group_version}")
    listed = answer.get("resources")
    found = [mapping_of(each) for each in listed] if isinstance(listed, list) else []
    return [
        {
            "name": text_of(each.get("name")),
            "singularName": "",
            "namespaced": each.get("namespaced") is True,
            "kind": text_of(each.get("kind")),
            "verbs": list(texts_of(each.get("verbs"))),
        }
        for each in found[:MAX_ITEMS]
        if text_of(each.get("name")) and text_of(each.get("kind"))
    ]


def status_of_answer(member: str, code: int, answer: Mapping[str, object]) -> Status:
    """Return a member's error status for the client, with the member's name in the message.

    Raises:
        NotOfTheApiError: it is no Status.
    """
    if answer.get("kind") != "Status" or answer.get("apiVersion") != "v1":
        raise NotOfTheApiError(f"found code {code} without a Status")
    message = printable(text_of(answer.get("message")))[:_MAX_MESSAGE]
    said = f"{member}: {message}"
    if code in (401, 403):
        return unavailable(
            f"{said} (the metrics API {member} refuses gpuscale's own account; bind it to a role that may "
            "get its metrics)"
        )
    return Status(code, _short(text_of(answer.get("reason"))), said, about=())


def unavailable(message: str) -> Status:
    """Return the 503 for a member that did not answer."""
    return Status(503, "ServiceUnavailable", message, about=())


def _check_kind(answer: Mapping[str, object], kind: str, group_version: str) -> None:
    found = (answer.get("kind"), answer.get("apiVersion"))
    if found != (kind, group_version):
        shown = " of ".join(_short(text_of(each)) or "nothing" for each in found)
        raise NotOfTheApiError(f"found {shown}, expected {kind} of {group_version}")


def _custom(target: CustomTarget, item: Mapping[str, object]) -> Body:
    metric = text_of(mapping_of(item.get("metric")).get("name")) or text_of(item.get("metricName"))
    _check_metric(metric, target.metric)
    described = mapping_of(item.get("describedObject"))
    name = text_of(described.get("name"))
    if not name or (target.name != ALL and name != target.name):
        raise NotOfTheApiError(
            f"found a value of the object {_short(name)!r}, expected {target.name}"
        )
    namespace = described.get("namespace")
    if target.namespace not in (None, ALL) and namespace != target.namespace:
        raise NotOfTheApiError("found a value of an object in another namespace")
    _check_measured(item)
    body = _known(item, _CUSTOM_FIELDS)
    body["describedObject"] = _known(described, _OBJECT_FIELDS)
    return body


def _external(target: ExternalTarget, item: Mapping[str, object]) -> Body:
    _check_metric(text_of(item.get("metricName")), target.metric)
    _check_measured(item)
    return _known(item, _EXTERNAL_FIELDS)


def _check_metric(found: str, asked: str) -> None:
    # Upstream's paths are partly case-insensitive; KEDA answers in the request's spelling.
    if found.lower() != asked.lower():
        raise NotOfTheApiError(f"found a value of {_short(found)!r}, expected {_short(asked)}")


def _known(item: Mapping[str, object], known: Sequence[str]) -> Body:
    """Return the fields of an item that the API defines, with their types checked."""
    found: Body = {}
    for key in known:
        if key in item:
            found[key] = value = item[key]
            kinds = _SHAPES.get(key)
            if kinds is not None and not isinstance(value, kinds):
                raise NotOfTheApiError(f"found {key} that is none of the API's")
    return found


def _check_measured(item: Mapping[str, object]) -> None:
    value, moment = item.get("value"), item.get("timestamp")
    # Nearly all have this form; parsing any quantity takes as long as everything else here.
    if not (isinstance(value, str) and _PLAIN.fullmatch(value)):
        milli_of(value)
    if moment is not None and time_ms(moment) == NO_TIME_MS:
        raise NotOfTheApiError("found a timestamp that is no time")
    labels = mapping_of(item.get("metricLabels"))
    if not all(isinstance(each, str) for each in labels.values()):
        raise NotOfTheApiError("found metricLabels that are no texts")


def _no_number(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


def _short(text: str) -> str:
    return printable(text[:80])
