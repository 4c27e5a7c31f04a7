"""Questions to the API server by POST, at a fraction of what the usual client takes for one.

Reviews of users are asked all day, several a second. Only what is plain goes this way; whatever is not
answered as it should be is for the usual client, which knows credentials that run out, refusals and reasons.
"""

import ssl
from dataclasses import dataclass, field

import aiohttp
import httpx2
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError as LightkubeConfigError

from gpuscale.kube.client.kubeconfig import Access

_ORDINARY = frozenset(
    {
        *("token", "tokenFile", "client-certificate", "client-certificate-data"),
        *("client-key", "client-key-data"),
    }
)
_HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}
_CREATED = (200, 201)


@dataclass(slots=True)
class Poster:
    """Posts JSON to one server.

    Args:
        server: its address.
        tls: CAs to trust, and a client certificate.
        auth: adds a token to a request; None adds nothing.
        timeout_s: of a whole question.
        max_bytes: of an answer.
    """

    server: str
    tls: ssl.SSLContext = field(repr=False)
    auth: httpx2.Auth | None = field(repr=False)
    timeout_s: float
    max_bytes: int
    _session: aiohttp.ClientSession | None = field(default=None, repr=False)

    async def post(self, path: str, body: bytes) -> bytes | None:
        """Return what the server made of a body; None where the usual client has to ask.

        Raises:
            TimeoutError: no answer in time; asking once more would take as long.
        """
        try:
            headers = {**_HEADERS, **self._authorization()}
            async with self._open().post(
                f"{self.server}{path}", data=body, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status not in _CREATED or (answer.content_length or 0) > self.max_bytes:
                    return None
                found = await answer.content.read(self.max_bytes + 1)
                return found if answer.content.at_eof() else None
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError, ValueError, LightkubeConfigError):
            return None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _authorization(self) -> dict[str, str]:
        if self.auth is None:
            return {}
        request = httpx2.Request("POST", self.server)
        next(self.auth.sync_auth_flow(request))
        return {
            name: request.headers[name] for name in ("Authorization",) if name in request.headers
        }

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self.timeout_s)
            connector = aiohttp.TCPConnector(ssl=self.tls)
            self._session = aiohttp.ClientSession(timeout=timeout, connector=connector)
        return self._session


def poster_of(
    access: Access, auth: httpx2.Auth | None, timeout_s: float, max_bytes: int
) -> Poster | None:
    """Return who posts with the credentials of a context; None where these are not plain ones."""
    config = access.config
    is_plain_server = not {"proxy-url", "tls-server-name"} & access.cluster.keys()
    if not is_plain_server or not access.user.keys() <= _ORDINARY:
        return None
    try:
        tls = verify_cluster(
            config.cluster, config.user or User(), config.abs_file, trust_env=False
        )
    except (LightkubeConfigError, OSError, ValueError):
        return None
    return Poster(config.cluster.server.rstrip("/"), tls, auth, timeout_s, max_bytes)
