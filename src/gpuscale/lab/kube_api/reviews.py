"""Access and identity reviews for `kubectl auth`, in JSON or protobuf.

Source: k8s.io/api v0.36 authorization/v1 (generated.proto: the numbers of fields); k8s.io/apimachinery v0.36
    pkg/runtime/serializer/protobuf (the envelope).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuscale.lab.kube_api.discovery import READS, REVIEWS
from gpuscale.lab.kube_api.kinds import ApiResource

Json = dict[str, Any]
_USER, _GROUP = "system:anonymous", "system:unauthenticated"
"""Whom an API server takes a client for that shows nothing."""
_MAGIC = b"k8s\0"
_RESOURCE_FIELDS = {
    1: "namespace",
    2: "verb",
    3: "group",
    4: "version",
    5: "resource",
    6: "subresource",
    7: "name",
}
_PATH_FIELDS = {1: "path", 2: "verb"}
_VARINT, _BYTES = 0, 2
_MAX_SHIFT = 63


def answer(kind: str, body: bytes, kinds: Sequence[ApiResource]) -> Json:
    """Return a review's spec and status.

    Args:
        kind: of the review.
        body: that a client sent.
        kinds: that are served.

    Raises:
        ValueError: the body is none.
    """
    if kind == "SelfSubjectReview":
        return {"status": {"userInfo": {"username": _USER, "groups": [_GROUP]}}}
    if kind == "SelfSubjectRulesReview":
        return {"spec": {}, "status": _rules(kinds)}
    spec = read_review(body)
    allowed = is_allowed(spec, kinds)
    status: Json = {"allowed": allowed}
    if not allowed:
        status["reason"] = "gpuscale up is only read"
    return {"spec": spec, "status": status}


def _rules(kinds: Iterable[ApiResource]) -> Json:
    """Return rules that let everybody read all kinds."""
    rules: list[Json] = [
        {"verbs": ["create"], "apiGroups": [group], "resources": [name]}
        for group, _, name in REVIEWS
    ]
    by_group: dict[str, list[str]] = {}
    for kind in kinds:
        names = by_group.setdefault(kind.group, [])
        own = (kind.plural, *(f"{kind.plural}/{each}" for each in kind.subresources))
        names.extend(each for each in own if each not in names)
    rules += [
        {"verbs": list(READS), "apiGroups": [group], "resources": names}
        for group, names in by_group.items()
    ]
    paths = [{"verbs": ["get"], "nonResourceURLs": ["*"]}]
    return {"resourceRules": rules, "nonResourceRules": paths, "incomplete": False}


def read_review(body: bytes) -> Json:
    """Return the spec of a SelfSubjectAccessReview.

    Raises:
        ValueError: the body is none.
    """
    try:
        spec = _protobuf_spec(body) if body.startswith(_MAGIC) else json.loads(body)["spec"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        raise ValueError("found no SelfSubjectAccessReview") from None
    if not isinstance(spec, dict):
        raise ValueError("spec: expected resourceAttributes or nonResourceAttributes")
    return spec


def is_allowed(spec: Mapping[str, Any], kinds: Iterable[ApiResource]) -> bool:
    """Return whether everybody may do it: reading is allowed, nothing else."""
    path, asked = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
    if isinstance(path, Mapping):
        return path.get("verb") == "get"
    if not isinstance(asked, Mapping):
        return False
    group, resource = asked.get("group", ""), asked.get("resource", "")
    below = asked.get("subresource", "")
    return asked.get("verb") in READS and any(
        group in (kind.group, "*")
        and resource in (kind.plural, "*")
        and (not below or below in kind.subresources)
        for kind in kinds
    )


def _protobuf_spec(body: bytes) -> Json:
    """Return the spec of a review in Kubernetes' protobuf envelope."""
    review = _fields(_fields(body[len(_MAGIC) :])[2])
    spec = _fields(review[2])
    found: Json = {}
    if 1 in spec:
        found["resourceAttributes"] = _texts(spec[1], _RESOURCE_FIELDS)
    if 2 in spec:
        found["nonResourceAttributes"] = _texts(spec[2], _PATH_FIELDS)
    return found


def _texts(message: bytes, names: Mapping[int, str]) -> dict[str, str]:
    fields = _fields(message)
    return {name: fields[number].decode() for number, name in names.items() if fields.get(number)}


def _fields(message: bytes) -> dict[int, bytes]:
    """Return a protobuf message's length-delimited fields, by number."""
    found: dict[int, bytes] = {}
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        if tag & 7 == _VARINT:
            _, position = _varint(message, position)
            continue
        if tag & 7 != _BYTES:
            raise ValueError(f"found a field of wire type {tag & 7}, expected 0 or 2")
        length, position = _varint(message, position)
        if position + length > len(message):
            raise ValueError("the message ends too early")
        found[tag >> 3] = message[position : position + length]
        position += length
    return found


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, _MAX_SHIFT + 1, 7):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number has more than 64 bits")
