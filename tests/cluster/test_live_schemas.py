"""What `gpuscale up` tells `kubectl explain`: the fields of a real API server, with its types.

Schemas are of the Kubernetes that the client library was made from, a later one than the server: it has more
fields, requires others, and moved one.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuscale.lab.kube_api.kinds import KINDS
from gpuscale.lab.kube_api.openapi import document, places
from gpuscale_testing import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]
Json = dict[str, Any]
MOVED = {"Pod.status.nodeAllocatableResourceClaimStatuses[].resources"}
"""Between Kubernetes 1.36 and 1.37."""


def resolved(found: Json, body: Json) -> Json:
    """Return what a reference leads to."""
    for each in (body, *body.get("allOf", ())):
        if "$ref" in each:
            name = each["$ref"].rpartition("/")[2]
            schema: Json = found["components"]["schemas"][name]
            return {**schema, "name": name.rpartition(".")[2]}
    return body


def kind_of(body: Json) -> str:
    if "oneOf" in body or body.get("x-kubernetes-int-or-string"):
        return "string"  # a quantity, or a number or name of a port
    return str(body.get("type", "object"))


def differences(
    theirs: Json, ours: Json, their: Json, our: Json, path: str, seen: set[str]
) -> Iterator[str]:
    """Yield where a schema of ours lacks something that the server's has."""
    if kind_of(their) != kind_of(our):
        yield f"{path}: {kind_of(their)} is {kind_of(our)}"
        return
    if kind_of(their) == "array":
        items = resolved(theirs, their["items"]), resolved(ours, our["items"])
        yield from differences(theirs, ours, *items, f"{path}[]", seen)
        return
    if their.get("name", "") in seen:
        return
    seen.add(their.get("name", path))
    for name, body in their.get("properties", {}).items():
        if name not in our.get("properties", {}):
            if f"{path}.{name}" not in MOVED:
                yield f"{path}.{name} is missing"
            continue
        pair = resolved(theirs, body), resolved(ours, our["properties"][name])
        yield from differences(theirs, ours, *pair, f"{path}.{name}", seen)


def of_kind(found: Json, identity: Json) -> Json:
    schemas: dict[str, Json] = found["components"]["schemas"]
    (body,) = [
        each
        for each in schemas.values()
        if each.get("x-kubernetes-group-version-kind") == [identity]
    ]
    return body


@pytest.mark.parametrize("place", places(KINDS))
async def test_schemas_have_all_fields_of_the_api_server(plane: ControlPlane, place: str) -> None:
    async with plane.client() as client:
        theirs = await client.get(f"/openapi/v3/{place}")
    ours = document(KINDS, place)
    kinds = [each for each in KINDS if each.group_version == place.partition("/")[2]]
    assert kinds
    for kind in kinds:
        identity = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        pair = of_kind(theirs, identity), of_kind(ours, identity)
        assert not list(differences(theirs, ours, *pair, kind.kind, set()))
