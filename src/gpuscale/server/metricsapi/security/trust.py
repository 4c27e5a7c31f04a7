"""The CAs that are trusted: those of the flags, else those that the cluster publishes."""

import logging
from pathlib import Path

from gpuscale.base.clock import Clock
from gpuscale.base.errors import UsageError
from gpuscale.base.watched_files import FileLook, LastGood
from gpuscale.server.metricsapi.security.chains import CaBundle
from gpuscale.server.metricsapi.security.reviews import RequestHeaders, Trust, TrustConfigMap
from gpuscale.server.metricsapi.settings import AuthSettings

_LOG = logging.getLogger(__name__)
LOOK_EVERY_S = 10.0


class CaFile:
    """A CA file that is reloaded when it changes.

    Raises:
        UsageError: it holds none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = LastGood((path,), self._read, (OSError, ValueError))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: {error}") from error

    @property
    def pem(self) -> str:
        return self._file.value

    @property
    def fault(self) -> str | None:
        """Why the current file is not used; None if it is."""
        error = self._file.fault
        return None if error is None else f"{self._path}: {error}"

    def look(self) -> None:
        """Reload the file if it holds CAs."""
        was_good = self._file.fault is None
        if self._file.look() is FileLook.FAILED and was_good:
            _LOG.warning("the last good CAs stay: %s", self.fault)

    def _read(self) -> str:
        pem = self._path.read_text(encoding="utf-8")
        CaBundle(pem)
        return pem


class TrustSources:
    """The CAs of flags and cluster together; a flag's come first.

    Args:
        settings: the flags.
        published: what the cluster publishes; None where that is not looked for.
        clock: times the waits.

    Raises:
        UsageError: a file holds no CAs.
    """

    def __init__(
        self, settings: AuthSettings, published: TrustConfigMap | None, clock: Clock
    ) -> None:
        self._settings = settings
        self._published = published
        self._clock = clock
        self._client_ca = _file(settings.client_ca_file)
        self._proxy_ca = _file(settings.proxy_ca_file)

    def trust(self) -> Trust:
        published = self._published.trust if self._published is not None else None
        found = published or Trust()
        return Trust(
            self._client_ca.pem if self._client_ca is not None else found.client_ca_pem,
            self._headers() if self._proxy_ca is not None else found.request_headers,
        )

    def faults(self) -> tuple[str, ...]:
        """Return why trusted CAs may be old or missing."""
        faults = [file.fault for file in (self._client_ca, self._proxy_ca) if file is not None]
        if self._published is not None:
            faults.append(self._published.fault)
        return tuple(fault for fault in faults if fault is not None)

    def is_known(self) -> bool:
        """Return whether the cluster's CAs were read at least once, where they are used."""
        return self._published is None or self._published.trust is not None

    async def run(self) -> None:
        """Reload CA files when they change, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_EVERY_S)
            for file in (self._client_ca, self._proxy_ca):
                if file is not None:
                    file.look()

    def _headers(self) -> RequestHeaders | None:
        if self._proxy_ca is None:
            return None
        settings = self._settings
        return RequestHeaders(
            self._proxy_ca.pem,
            settings.proxy_names,
            settings.username_headers,
            settings.group_headers,
            settings.extra_prefixes,
        )


def _file(path: Path | None) -> CaFile | None:
    return None if path is None else CaFile(path)
