"""Asks the API server whether an account has the rights for a task, before anything is changed."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuscale.base.errors import UsageError
from gpuscale.base.words import counted
from gpuscale.kube.client.client import KubeClient

PATHS = "nonResourceURLs"
"""Group of a right to a path."""
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_AT_ONE_TIME = 16
"""Questions; an API server that shares its seats out fairly has some for everyone."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A permission, as RBAC and access reviews express it."""

    namespace: str
    """Empty: in no namespace, or in all of them."""
    group: str
    resource: str
    """A path, where `group` is `nonResourceURLs`."""
    verb: str
    name: str = ""
    """Empty: any object."""

    @property
    def place(self) -> str:
        return f" in namespace {self.namespace}" if self.namespace else ""


async def missing_rights(client: KubeClient, rights: Sequence[Right]) -> tuple[Right, ...]:
    """Return the rights that the client's account lacks, in order.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    turns = asyncio.Semaphore(_AT_ONE_TIME)

    async def is_allowed(right: Right) -> bool:
        async with turns:
            answer = await client.create(_REVIEW, _question(right))
        status: Mapping[str, Any] = answer.get("status") or {}
        return status.get("allowed") is True

    # For an account with all rights, a single question is enough.
    everything = Right("", "*", "*", "*")
    if await is_allowed(everything) and await is_allowed(replace(everything, group=PATHS)):
        return ()
    allowed = await asyncio.gather(*(is_allowed(each) for each in rights))
    return tuple(right for right, is_right in zip(rights, allowed, strict=True) if not is_right)


async def check_rights(client: KubeClient, rights: Sequence[Right], what: str, hint: str) -> None:
    """Ask the API server about every right.

    Args:
        client: of the account that is to have them.
        rights: that it needs.
        what: needs them, such as `the installation`.
        hint: what to do about missing ones.

    Raises:
        UsageError: some are missing; all of them are named.
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    missing = await missing_rights(client, rights)
    if missing:
        lines = "\n".join(f"  {line}" for line in _lines(missing))
        raise UsageError(
            f"this account lacks {counted(len(missing), 'right')} that {what} needs; nothing was changed:\n"
            f"{lines}\n{hint}"
        )


def _question(right: Right) -> dict[str, Any]:
    if right.group == PATHS:
        asked: dict[str, Any] = {
            "nonResourceAttributes": {"path": right.resource, "verb": right.verb}
        }
    else:
        resource, _, part = right.resource.partition("/")
        attributes = {
            "namespace": right.namespace,
            "group": right.group,
            "resource": resource,
            "subresource": part,
            "verb": right.verb,
            "name": right.name,
        }
        asked = {"resourceAttributes": {key: text for key, text in attributes.items() if text}}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": asked,
    }


def _lines(rights: Iterable[Right]) -> list[str]:
    """Return a line for each resource and namespace, with the verbs."""
    verbs: dict[str, list[str]] = defaultdict(list)
    for right in rights:
        group = f".{right.group}" if right.group not in ("", PATHS) else ""
        name = f" {right.name}" if right.name else ""
        verbs[f"{right.resource}{group}{name}{right.place}"].append(right.verb)
    return [f"{', '.join(found)} {what}" for what, found in verbs.items()]
