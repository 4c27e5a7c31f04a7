"""The API server as an installation asks it: reads are tried again, since a cluster that changes is busy."""

from collections.abc import Mapping

from gpuscale.core.clock import WallClock
from gpuscale.kube.client.connection import JsonObject
from gpuscale.kube.client.errors import ApiUnreachableError
from gpuscale.kube.client.writing import WritingClient

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
