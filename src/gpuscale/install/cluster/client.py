"""The API server as an installation uses it.

Reads are tried again, since a cluster that changes is busy. Server-side apply is strict, and under one name.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from gpuscale.core.clock import WallClock
from gpuscale.install.cluster.kinds import path_of
from gpuscale.kube.client.connection import JsonObject
from gpuscale.kube.client.errors import ApiUnreachableError
from gpuscale.kube.client.writing import APPLY, WritingClient

_TRIES = 6
_WAIT_S = 1.0


class PatientClient(WritingClient):
    """A connection whose reads outlast a few seconds without an answer, such as of kinds that are new."""

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, accept: str = "application/json"
    ) -> JsonObject:
        """Return the object at a path.

        Raises:
            ApiUnreachableError: no answer, or not now, several times.
            ApiStatusError: refused.
        """
        for _ in range(_TRIES - 1):
            try:
                return await super().get(path, params, accept)
            except ApiUnreachableError:
                await WallClock().sleep(_WAIT_S)
        return await super().get(path, params, accept)


FIELD_MANAGER = "gpuscale"


async def server_side_apply(
    client: WritingClient, body: Mapping[str, Any], *, forces: bool, **options: str
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
