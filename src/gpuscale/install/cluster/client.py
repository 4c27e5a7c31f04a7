"""Server-side apply as an installation uses it: strict, and under one name."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from gpuscale.install.cluster.kinds import path_of
from gpuscale.kube.client.client import APPLY, KubeClient

FIELD_MANAGER = "gpuscale"


async def server_side_apply(
    client: KubeClient, body: Mapping[str, Any], *, forces: bool, **options: str
) -> Mapping[str, Any]:
    """Return an object as the server has it after the apply.

    Args:
        client: to the API server.
        body: what is wanted.
        forces: takes over fields that others have set since.
        options: of the request, such as `dryRun`.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused; code 409 where fields belong to others.
    """
    query = {
        "fieldManager": FIELD_MANAGER,
        # Strict: a field that the cluster's version does not know is an error, and not left out.
        "fieldValidation": "Strict",
        "force": str(forces).lower(),
        **options,
    }
    return await client.patch(f"{path_of(body)}?{urlencode(query)}", body, APPLY)
