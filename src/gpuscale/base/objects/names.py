"""Names as Kubernetes takes them, with its own words for what is wrong.

Source: k8s.io/apimachinery v0.36 pkg/util/validation/validation.go; kubernetes v1.36
    pkg/apis/core/helper/helpers.go and validation/validation.go (resources of containers).
"""

import re

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_MAX_LABEL = 63
_MAX_SUBDOMAIN = 253
_SEGMENT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:@-]*[A-Za-z0-9])?")
_ALPHANUMERIC = "must start and end with an alphanumeric character"

_OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES = "hugepages-"
_NATIVE = "kubernetes.io/"
_QUOTA = "requests."


def subdomain_fault(name: str) -> str | None:
    """Return what is wrong with the name of an object such as `vision.v2`; None where nothing is."""
    if len(name) > _MAX_SUBDOMAIN:
        return f"must be no more than {_MAX_SUBDOMAIN} characters"
    if re.fullmatch(_SUBDOMAIN, name):
        return None
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
        f"'.', and {_ALPHANUMERIC}"
    )


def is_object_name(name: str) -> bool:
    """Return whether an object of some kind may be called so.

    That is an RFC 1123 subdomain, or one with the further letters that a few kinds use, such as the role
    `system:node` or the image `sha256:...`. Kubernetes lets the names of these be any path segment, quotes
    and blanks included; no object that a metric is about has such a name.
    """
    return len(name) <= _MAX_SUBDOMAIN and _SEGMENT.fullmatch(name) is not None


def label_fault(name: str) -> str | None:
    """Return what is wrong with the name of a container or a namespace; None where nothing is."""
    if len(name) > _MAX_LABEL:
        return f"must be no more than {_MAX_LABEL} characters"
    if re.fullmatch(_LABEL, name):
        return None
    return (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
        f"{_ALPHANUMERIC}"
    )


def label_value_fault(value: str) -> str | None:
    """Return what is wrong with the value of a label; None where nothing is."""
    if len(value) > _MAX_LABEL:
        return f"must be no more than {_MAX_LABEL} bytes"
    if not value or re.fullmatch(_NAME, value):
        return None
    return (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
        f"'.', and {_ALPHANUMERIC}"
    )


def qualified_name_fault(name: str) -> str | None:
    """Return what is wrong with the key of a label, such as `example.com/team`; None where nothing is."""
    prefix, slash, last = name.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    fault = subdomain_fault(prefix) if prefix else None
    if fault is not None:
        return f"prefix part {fault}"
    if len(last) > _MAX_LABEL:
        return f"name part must be no more than {_MAX_LABEL} bytes"
    if re.fullmatch(_NAME, last):
        return None
    if not last:
        return "name part must be non-empty"
    return (
        f"name part must consist of alphanumeric characters, '-', '_' or '.', and {_ALPHANUMERIC}"
    )


def container_resource_fault(name: str) -> str | None:
    """Return why a container can't have a resource of this name; None where it can."""
    fault = qualified_name_fault(name)
    if fault is not None:
        return fault
    if "/" not in name:
        is_known = name in _OF_CONTAINERS or name.startswith(_HUGE_PAGES)
        return None if is_known else "must be a standard resource for containers"
    if _NATIVE in name:
        return None
    if name.startswith(_QUOTA) or qualified_name_fault(_QUOTA + name) is not None:
        return "doesn't follow extended resource name standard"
    return None
