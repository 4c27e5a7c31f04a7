"""Credentials for servers other than the API server, such as Prometheus: a pod's, or a kubeconfig's."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.errors import UsageError
from gpuscale.kube.client.kubeconfig import SERVICE_ACCOUNT
from gpuscale.kube.client.plain import plain_access
from gpuscale.kube.client.settings import KubeSettings

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The CAs a client trusts and its own credentials, for servers beside the API server."""

    tls: ssl.SSLContext = field(repr=False)
    """Trust, and a client certificate where there is one."""
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    """Comes before `token`."""


def service_account_credentials() -> ClientCredentials:
    """Return the credentials of a pod's service account.

    Raises:
        UsageError: this is no pod, or it has none.
    """
    try:
        tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
    except (OSError, ValueError) as error:
        raise UsageError(f"no service account in {SERVICE_ACCOUNT}: {error}") from error
    return ClientCredentials(tls, token_file=SERVICE_ACCOUNT / "token")


def kubeconfig_credentials(path: Path) -> ClientCredentials:
    """Return the credentials of a kubeconfig's current context, whatever its server.

    Raises:
        UsageError: not a kubeconfig, or one whose credentials come from a program.
    """
    plain = plain_access(KubeSettings(path))
    if plain is not None and plain.tls is not None:
        return ClientCredentials(plain.tls, plain.token or None, plain.token_file)
    # Imported late: it takes 10 MiB, and unusual kubeconfigs are rare.
    from lightkube.config.client_adapter import verify_cluster
    from lightkube.config.models import User
    from lightkube.core.exceptions import ConfigError as LightkubeConfigError

    try:
        config = _current(path)
        user = config.user or User()
        tls = verify_cluster(config.cluster, user, config.abs_file, trust_env=False)
        token_file = config.abs_file(user.token_file) if user.token_file else None
    except (LightkubeConfigError, OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: no usable kubeconfig: {error}") from error
    return ClientCredentials(tls, user.token, Path(token_file) if token_file else None)


def _current(path: Path) -> "SingleConfig":
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.core.exceptions import ConfigError as LightkubeConfigError

    config = KubeConfig.from_file(path).get()
    if config is None:
        raise LightkubeConfigError("it names no context")
    if config.user is not None and (config.user.exec or config.user.auth_provider):
        raise LightkubeConfigError("credentials from a program are not supported here")
    return config
