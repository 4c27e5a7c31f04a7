"""The server's side of TLS, with certificates that can be replaced while it runs."""

import logging
import ssl
from pathlib import Path

from gpuscale.agent.exporter.http.web_config import CLIENT_AUTH_TYPES, TLS_VERSIONS, TlsConfig
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.watched_files import FileLook, LastGood

_log = logging.getLogger(__name__)


class ServerTls:
    """A TLS context that follows its certificate files.

    New connections get a renewed certificate; a changed `client_ca_file` adds to what is trusted, and what
    it no longer holds is forgotten at the next start.

    Raises:
        ConfigError: a file can't be read or is no certificate or key.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = TLS_VERSIONS[config.min_version]
        self.context.maximum_version = TLS_VERSIONS[config.max_version]
        self.context.verify_mode = CLIENT_AUTH_TYPES[config.client_auth_type]
        self._files = LastGood(config.files, self._load_all, (ConfigError,))
        self._logged = ""

    def follow_files(self) -> None:
        """Take over changed files; bad ones are logged, and what was good stays."""
        match self._files.look():
            case FileLook.LOADED:
                _log.info("certificates loaded again")
            case FileLook.FAILED if (fault := str(self._files.fault)) != self._logged:
                _log.error("the certificates stay as they were: %s", fault)
                self._logged = fault
                return
            case FileLook.FAILED:
                return
            case FileLook.UNCHANGED:
                pass
        self._logged = ""

    def _load_all(self) -> None:
        # A context that has loaded only some of the files can't be restored.
        self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self._load(self.context)

    def _load(self, context: ssl.SSLContext) -> None:
        config = self._config
        try:
            context.load_cert_chain(config.cert_file, config.key_file)
        except (OSError, ssl.SSLError) as error:
            raise _bad_file(
                config.cert_file, error, f"a certificate with key {config.key_file}"
            ) from None
        if config.client_ca_file is not None:
            try:
                context.load_verify_locations(config.client_ca_file)
            except (OSError, ssl.SSLError) as error:
                raise _bad_file(config.client_ca_file, error, "certificates of CAs") from None


def _bad_file(path: Path, error: OSError, expected: str) -> ConfigError:
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return ConfigError(Problem(str(path), None, None, str(reason), expected))
