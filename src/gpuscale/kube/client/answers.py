"""Responses of an API server: JSON objects or errors, the same for every client."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from gpuscale.base.unreachable import distrust_of, reason_of
from gpuscale.kube.client.errors import ApiStatusError, ApiUnreachableError, read_refusal

JsonObject = dict[str, Any]
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_RETRY_CODES = frozenset({408, 429, 500, 502, 503, 504})
_UNAUTHORIZED = 401


def accepted(accept: str, params: Mapping[str, str], *, metadata_only: bool) -> str:
    """Return the Accept header for a list or watch with these parameters."""
    if not metadata_only:
        return accept
    return f"{METADATA_ONLY if 'watch' in params else _METADATA_LIST},{accept}"


class AnswerReader:
    """Reads one server's responses.

    Args:
        server: its address.
        context: of the kubeconfig; empty in a pod.
        metadata_only: whether lists are read for names, namespaces and labels alone.
    """

    def __init__(self, server: str, context: str, *, metadata_only: bool = False) -> None:
        self._context = context
        self._metadata_only = metadata_only
        self.who = f"the API server at {server}"

    def parsed(self, path: str, body: bytes) -> JsonObject:
        """Return a body's JSON object.

        Raises:
            ApiUnreachableError: it is none.
        """
        if self._metadata_only:
            from gpuscale.kube.client.metadata import metadata_list

            if (listed := metadata_list(body)) is not None:
                return listed
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ApiUnreachableError(f"{self.who} answered {path} with no JSON object")
        return found

    async def lines(
        self, path: str, chunks: AsyncIterator[bytes], most: int
    ) -> AsyncIterator[bytes]:
        """Yield a body's non-empty lines.

        Raises:
            ApiUnreachableError: one is longer than `most`.
        """
        rest = b""
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    yield line
            self.check_size(path, len(rest), most)

    async def whole(self, path: str, chunks: AsyncIterator[bytes], most: int) -> bytes:
        """Return a body.

        Raises:
            ApiUnreachableError: it is longer than `most`.
        """
        body = bytearray()
        async for chunk in chunks:
            body += chunk
            self.check_size(path, len(body), most)
        return bytes(body)

    def check_size(self, path: str, size: int, most: int) -> None:
        """Raise ApiUnreachableError if a size is above a limit."""
        if size > most:
            raise ApiUnreachableError(f"{self.who} answered {path} with more than {most} bytes")

    def refusal(self, path: str, code: int, body: bytes) -> Exception:
        """Return the error for an unsuccessful response."""
        refusal = read_refusal(body)
        text = f"{self.who} answered {path} with {code}: {refusal.message}"
        if code in _RETRY_CODES:
            return ApiUnreachableError(text, code, refusal.said)
        if code == _UNAUTHORIZED:
            whose = f"context {self._context}" if self._context else "this pod's service account"
            text = (
                f"{self.who} does not accept the credentials of {whose} ({code}: {refusal.message}); "
                "they may have expired: log in again, as for kubectl"
            )
        elif '"system:anonymous"' in refusal.message:
            text += "; no credentials were sent, since the kubeconfig's context has none"
        return ApiStatusError(code, text, refusal.immutable_fields, refusal.said)

    def unreachable(self, error: BaseException) -> ApiUnreachableError:
        """Return the error for a request without response."""
        text = f"{self.who} can't be reached: {reason_of(error)}"
        if distrust_of(error) is not None:
            text += (
                "; the kubeconfig's certificate-authority-data is another cluster's, or a proxy is in "
                "between"
            )
        return ApiUnreachableError(text)

    def late(self, path: str) -> ApiUnreachableError:
        """Return the error for a response that is too late."""
        return ApiUnreachableError(f"{self.who} gave no answer to {path} in time")
