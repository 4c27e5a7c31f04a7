"""Looks up HPAs by name, with hints if they can't be read."""

from collections.abc import Mapping

from gpuscale.base.errors import NotFoundError, UnavailableError
from gpuscale.base.words import closest
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import ApiStatusError, ApiUnreachableError, JsonObject, KubeClient

AUTOSCALING = "/apis/autoscaling/v2"
HPAS = "horizontalpodautoscalers"
_PAGE = "500"
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
_ANONYMOUS = '"system:anonymous"'
"""The user the API server sees where no credentials were sent; the connection says so."""
_NAMED = 5
"""Namespaces that a message spells out."""


class UnreadableError(UnavailableError):
    """Something the answer depends on can't be read; the message says what to do."""


def could_not_look(error: ApiStatusError | ApiUnreachableError, what: str) -> UnreadableError:
    """Return the error for a request that the API server refused.

    Args:
        error: of the request.
        what: was to be read, such as `the pods of prod/vision`.
    """
    if error.code in (None, _UNAUTHORIZED) or _ANONYMOUS in error.said:
        return UnreadableError(str(error))
    if error.code == _FORBIDDEN and error.said:
        advice = "the role in docs/decide.md allows all that decide reads"
        return UnreadableError(f"{what}: {error.said}; {advice}")
    return UnreadableError(f"{what}: {error}")


async def list_all(
    client: KubeClient, path: str, params: Mapping[str, str] | None = None
) -> list[JsonObject]:
    """Return all items of a list, read page by page.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    asked = {**(params or {}), "limit": _PAGE}
    items: list[JsonObject] = []
    while True:
        page = await client.get(path, asked)
        found = page.get("items")
        items += [e for e in (found if isinstance(found, list) else ()) if isinstance(e, dict)]
        asked["continue"] = text_of(mapping_of(page.get("metadata")).get("continue"))
        if not asked["continue"]:
            return items


async def find_hpas(client: KubeClient, namespace: str | None) -> list[JsonObject]:
    """Return a namespace's HPAs; None means all namespaces.

    Raises:
        NotFoundError: there is none.
        UnreadableError: they can't be listed.
    """
    where = "all namespaces" if namespace is None else f"namespace {namespace}"
    try:
        items = await list_all(client, _path(namespace))
    except (ApiStatusError, ApiUnreachableError) as error:
        raise could_not_look(error, f"the HPAs of {where}") from error
    if not items:
        raise NotFoundError(f"no HPA in {where}")
    return items


async def find_hpa(client: KubeClient, namespace: str, name: str) -> JsonObject:
    """Return one HPA.

    Raises:
        NotFoundError: there is none of this name; says which there are.
        UnreadableError: it can't be read.
    """
    try:
        return await client.get(f"{_path(namespace)}/{name}")
    except ApiStatusError as error:
        if error.code != _NOT_FOUND:
            raise could_not_look(error, f"hpa/{name} in namespace {namespace}") from error
    except ApiUnreachableError as error:
        raise could_not_look(error, f"hpa/{name} in namespace {namespace}") from error
    hint = await _hint(client, namespace, name)
    raise NotFoundError(f"hpa/{name}: not found in namespace {namespace}{hint}")


async def _hint(client: KubeClient, namespace: str, name: str) -> str:
    """Return where an HPA of this or a similar name exists; empty if that can't be listed."""
    try:
        here = [name_of(body) for body in await list_all(client, _path(namespace))]
        if meant := closest(name, here):
            return f"; did you mean hpa/{meant}?"
        everywhere = await list_all(client, _path(None))
    except (ApiStatusError, ApiUnreachableError):
        return ""
    others = [namespace_of(body) for body in everywhere if name_of(body) == name]
    if others:
        return f"; there is one in {_listed(others)}: say -n {others[0]}"
    if not here:
        return ", which has no HPA"
    return f"; the HPAs there: {_listed(here)}"


def name_of(body: Mapping[str, object]) -> str:
    """Return an object's name."""
    return text_of(mapping_of(body.get("metadata")).get("name"))


def namespace_of(body: Mapping[str, object]) -> str:
    """Return an object's namespace."""
    return text_of(mapping_of(body.get("metadata")).get("namespace"))


def _path(namespace: str | None) -> str:
    place = "" if namespace is None else f"namespaces/{namespace}/"
    return f"{AUTOSCALING}/{place}{HPAS}"


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
