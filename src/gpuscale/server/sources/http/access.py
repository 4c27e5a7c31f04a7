"""A client's tokens, passwords, certificates and CAs, reloaded when their files change.

Tokens, passwords and certificates are read again as their files change. A file that can't be used any more,
as one that is half written, leaves the last good content in place; the server has the last word anyway.
"""

import asyncio
import base64
import logging
import ssl
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.base.watched_files import FileLook, LastGood

_LOG = logging.getLogger(__name__)
LOOK_S = 10.0
"""How often files are looked at, in the machine's seconds."""
_MAX_SECRET_BYTES = 64 * 1024


class BearerToken(Protocol):
    """A source of bearer tokens."""

    async def text(self) -> str:
        """Return the current token.

        Raises:
            UnavailableError: there is none.
        """

    def forget(self, token: str) -> bool:
        """Drop a refused token; return whether another can be had at once."""


class SecretFile:
    """A token or password in a file, without surrounding whitespace."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text: str | None = None
        self._read_at = 0.0

    async def text(self) -> str:
        """Return the secret.

        Raises:
            UnavailableError: the file was never readable.
        """
        now = asyncio.get_running_loop().time()
        if self._text is None or now - self._read_at >= LOOK_S:
            self._text = await self._read()
            self._read_at = now
        return self._text

    def forget(self, token: str) -> bool:
        """Return False: another secret needs a change of the file."""
        return False

    async def _read(self) -> str:
        try:
            return (await asyncio.to_thread(self._read_now)).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            if self._text is None:
                raise UnavailableError(f"{self._path} can't be read: {reason}") from error
            _LOG.warning("%s can't be read, its last content is used: %s", self._path, reason)
            return self._text

    def _read_now(self) -> str:
        with self._path.open(encoding="utf-8") as file:
            return file.read(_MAX_SECRET_BYTES)


class TlsFiles:
    """A TLS context out of files, rebuilt when one of them changes. Open connections keep theirs.

    Args:
        make: reads the files.
        paths: of the files.

    Raises:
        Exception: what `make` raises; later it is only logged.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext], paths: Sequence[Path]) -> None:
        self._paths = paths
        self._files = LastGood(paths, make, (OSError, ValueError, UsageError))
        self._looked_at: float | None = None

    def context(self) -> ssl.SSLContext:
        now = asyncio.get_running_loop().time()
        if self._looked_at is None or now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._look()
        return self._files.value

    def _look(self) -> None:
        match self._files.look():
            case FileLook.FAILED:
                _LOG.warning("the last good certificates are used: %s", self._files.fault)
            case FileLook.LOADED:
                _LOG.info("%s: read again", ", ".join(map(str, self._paths)))
            case FileLook.UNCHANGED:
                pass


class SourceAccess:
    """Credentials and TLS of a client's requests.

    Args:
        headers: sent with every request; a name may come twice.
        token: for `Authorization: Bearer`.
        username: for basic authentication, with `password`.
        password: None is an empty one.
        tls: CAs to trust, and a client certificate; None is what the system trusts.
        server_name: that the server's certificate is for; None for the host of the address.
    """

    def __init__(
        self,
        headers: Sequence[tuple[str, str]] = (),
        token: BearerToken | None = None,
        username: str | None = None,
        password: SecretFile | None = None,
        tls: TlsFiles | None = None,
        server_name: str | None = None,
    ) -> None:
        self._headers = tuple(headers)
        self._token = token
        self._username = username
        self._password = password
        self._tls = tls
        self.server_name = server_name

    async def headers(self) -> list[tuple[str, str]]:
        """Return a request's headers with credentials.

        Raises:
            UnavailableError: a secret can't be read.
        """
        headers = list(self._headers)
        if self._token is not None:
            headers.append(("Authorization", f"Bearer {await self._token.text()}"))
        elif self._username is not None:
            password = "" if self._password is None else await self._password.text()
            pair = base64.b64encode(f"{self._username}:{password}".encode()).decode()
            headers.append(("Authorization", f"Basic {pair}"))
        return headers

    def forgets(self, authorization: str) -> bool:
        """Drop the token of a refused request; return whether a retry may succeed."""
        return self._token is not None and self._token.forget(authorization.removeprefix("Bearer "))

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context of a request."""
        return _system_trust() if self._tls is None else self._tls.context()


@cache
def _system_trust() -> ssl.SSLContext:
    """Return a TLS context with the system's CAs; the first call takes 50 ms."""
    return ssl.create_default_context()


def tls_of_files(
    ca_file: Path | None, pair: tuple[Path, Path] | None, *, verifies: bool = True
) -> TlsFiles:
    """Return a TLS context from a CA bundle, and a client certificate if given.

    Args:
        ca_file: None for what the system trusts.
        pair: certificate and key; None for none.
        verifies: whether the server's certificate is checked at all.

    Raises:
        OSError, ValueError: a file can't be used.
    """

    def make() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=ca_file)
        if not verifies:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if pair is not None:
            context.load_cert_chain(*pair)
        return context

    return TlsFiles(make, _given(ca_file, pair))


def tls_to(
    destination: str,
    ca_file: Path | None,
    pair: tuple[Path, Path] | None,
    *,
    verifies: bool = True,
) -> TlsFiles | None:
    """Return the TLS context of a destination's settings; None for the system's default.

    Args:
        destination: in words, for the error.
        ca_file: as for `tls_of_files`.
        pair: as for `tls_of_files`.
        verifies: as for `tls_of_files`.

    Raises:
        UsageError: a file can't be used.
    """
    files = _given(ca_file, pair)
    if not files and verifies:
        return None
    try:
        return tls_of_files(ca_file, pair, verifies=verifies)
    except (OSError, ValueError) as error:
        where = ", ".join(map(str, files)) or "the system's CAs"
        raise UsageError(f"{where}: can't be used to reach {destination}: {error}") from error


def _given(ca_file: Path | None, pair: tuple[Path, Path] | None) -> list[Path]:
    return [path for path in (ca_file, *(pair or ())) if path is not None]
