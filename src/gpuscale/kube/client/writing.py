"""Creating, changing and deleting objects, for what acts on a cluster instead of looking at it."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from gpuscale.kube.client.api import ApiClient
from gpuscale.kube.client.connection import JsonObject
from gpuscale.kube.client.errors import ApiStatusError

STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
"""Server-side apply; JSON is YAML."""
NOT_FOUND = 404
CONFLICT = 409


class WritingClient(ApiClient):
    """A connection that writes. Nothing is tried twice: the caller knows what a second time would do."""

    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        """Return the object that was made of `body` in the collection at `path`.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused; code 409 where it exists already.
        """
        return await self._send("POST", path, body)

    async def patch(self, path: str, body: Mapping[str, Any], kind: str = MERGE) -> JsonObject:
        """Return the object at `path` as it is with the patch, of content type `kind`, applied.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused; code 404 where there is no such object.
        """
        return await self._send("PATCH", path, body, kind)

    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        """Return the object at `path` as `body` says it is, and nothing of what it was.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused; code 409 where it is not in the `resourceVersion` of `body` any more.
        """
        return await self._send("PUT", path, body)

    async def delete(
        self,
        path: str,
        options: Mapping[str, Any] | None = None,
        *,
        selectors: Mapping[str, str] | None = None,
    ) -> bool:
        """Delete an object, or those of a collection that selectors find; return whether there was any.

        Args:
            path: of the object or the collection.
            options: DeleteOptions, such as `gracePeriodSeconds`.
            selectors: `labelSelector` and `fieldSelector`; for collections.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused, for another reason than that there is no such object.
        """
        query = f"?{urlencode(selectors)}" if selectors else ""
        try:
            await self._send("DELETE", path + query, options or {})
        except ApiStatusError as error:
            if error.code == NOT_FOUND:
                return False
            raise
        return True

    async def find(self, path: str) -> JsonObject | None:
        """Return the object at a path; None where there is none.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused.
        """
        try:
            return await self.get(path)
        except ApiStatusError as error:
            if error.code == NOT_FOUND:
                return None
            raise
