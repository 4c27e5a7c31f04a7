"""Direct reading of common API server access: a service account, or a simple kubeconfig.

The rest is left to `kubeconfig` and `transport`, and so are all complaints: programs that give credentials,
passwords, proxies, impersonation, the system's certificates, and files with a fault.
"""

import base64
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuscale.base.errors import GpuscaleError
from gpuscale.kube.client import kubeconfig
from gpuscale.kube.client.errors import ApiUnreachableError
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.kube.json_values import text_of

_CLUSTER_TEXTS = frozenset(
    {"server", "certificate-authority", "certificate-authority-data", "tls-server-name"}
)
_PASSED_OVER = "extensions"
_USER_TEXTS = frozenset(
    {
        *("token", "tokenFile", "client-certificate", "client-certificate-data"),
        *("client-key", "client-key-data"),
    }
)


@dataclass(frozen=True, slots=True)
class PlainAccess:
    """An API server's address, CAs and credentials."""

    server: str
    tls: ssl.SSLContext | None = field(repr=False)
    """None for a server without TLS."""
    server_name: str
    """What its certificate is for; empty is the host of its address."""
    token: str = field(repr=False)
    token_file: Path | None
    """Comes before `token`; it is read for each request, since what is in it is renewed."""
    context: str
    """Of the kubeconfig; empty in a pod."""

    def bearer(self) -> str:
        """Return the token of a request; empty for none.

        Raises:
            ApiUnreachableError: its file can't be read.
        """
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text().strip()
        except (OSError, ValueError) as error:
            raise ApiUnreachableError(
                f"the API server at {self.server}: no token in {self.token_file}: {error}"
            ) from error


def plain_access(settings: KubeSettings) -> PlainAccess | None:
    """Return the access to the API server; None if it is not simple, or faulty."""
    try:
        return _of_pod() if settings.kubeconfig is None else _of_file(settings, settings.kubeconfig)
    except (GpuscaleError, OSError, ValueError, KeyError):
        return None


def _of_pod() -> PlainAccess:
    account = kubeconfig.SERVICE_ACCOUNT
    token_file = account / "token"
    token_file.read_text()
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    return PlainAccess(server, tls, "", "", token_file, "")


def _of_file(settings: KubeSettings, path: Path) -> PlainAccess | None:
    data = kubeconfig.merged_kubeconfig((path, *settings.more_kubeconfigs))
    name = settings.context or text_of(data.get("current-context"))
    context = kubeconfig.section(data, "context", name)
    cluster = _texts(kubeconfig.section(data, "cluster", text_of(context.get("cluster"))))
    user = _texts(kubeconfig.section(data, "user", text_of(context.get("user"))))
    if not cluster or not user or not cluster.keys() <= _CLUSTER_TEXTS:
        return None
    if not user.keys() <= _USER_TEXTS:
        return None
    server = cluster.get("server", "")
    url = urlsplit(server)
    tls = _tls(cluster, user) if url.scheme == "https" else None
    is_odd = not url.hostname or url.port == 0 or url.username is not None
    if is_odd or (tls is None and url.scheme != "http"):
        return None
    token_file = Path(user["tokenFile"]) if "tokenFile" in user else None
    server_name = cluster.get("tls-server-name", "")
    return PlainAccess(server, tls, server_name, user.get("token", ""), token_file, name)


def _texts(section: Mapping[str, Any]) -> dict[str, str]:
    """Return a section of text values only; empty for any other."""
    fields = {key: value for key, value in section.items() if key != _PASSED_OVER}
    return fields if all(isinstance(each, str) for each in fields.values()) else {}


def _tls(cluster: Mapping[str, str], user: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the CAs and the client certificate; None if the file has no CA."""
    file, text = cluster.get("certificate-authority"), cluster.get("certificate-authority-data")
    if file:
        tls = ssl.create_default_context(cafile=file)
    elif text:
        tls = ssl.create_default_context(cadata=base64.b64decode(text).decode())
    else:
        return None
    certificate, key = _pem(user, "client-certificate"), _pem(user, "client-key")
    if certificate or key:
        # Python's ssl loads certificates from files only; a service account has no client
        # certificate.
        import tempfile

        with tempfile.NamedTemporaryFile(suffix=".pem") as both:
            both.write(certificate + b"\n" + key + b"\n")
            both.flush()
            tls.load_cert_chain(both.name)
    return tls


def _pem(user: Mapping[str, str], name: str) -> bytes:
    if text := user.get(f"{name}-data"):
        return base64.b64decode(text)
    return Path(user[name]).read_bytes() if name in user else b""
