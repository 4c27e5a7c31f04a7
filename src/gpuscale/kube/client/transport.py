"""The HTTP client of a kubeconfig's context: its trust, credentials and proxy.

lightkube reads kubeconfig files and service accounts, and gives their TLS and credentials.
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError as LightkubeConfigError

from gpuscale.base.errors import UsageError
from gpuscale.kube.client.credentials import ProgramAuth
from gpuscale.kube.client.kubeconfig import Access
from gpuscale.kube.client.sockets import NOTICE_DEAD_PEERS
from gpuscale.kube.json_values import mapping_of, text_of, texts_of

_CA_FILE = "certificate-authority"


def make_client(access: Access, timeout_s: float) -> httpx2.AsyncClient:
    """Return the HTTP client of a context: its trust, its credentials, its proxy.

    Raises:
        UsageError: certificates, proxy or credentials can't be used.
    """
    config = access.config
    user = config.user or User()
    try:
        tls = verify_cluster(config.cluster, user, config.abs_file, trust_env=False)
        program = mapping_of(access.user.get("exec"))
        # A token in the kubeconfig takes precedence over a program, as for kubectl.
        if program and not (user.token or user.token_file):
            auth: httpx2.Auth | None = ProgramAuth(program, _info_for_programs(access.cluster), tls)
        else:
            auth = user_auth(user)
        client = httpx2.AsyncClient(
            base_url=config.cluster.server,
            transport=httpx2.AsyncHTTPTransport(
                verify=tls, trust_env=False, socket_options=NOTICE_DEAD_PEERS
            ),
            verify=tls,
            auth=auth,
            timeout=httpx2.Timeout(timeout_s),
            trust_env=False,
            proxy=text_of(access.cluster.get("proxy-url")) or None,
            headers=_impersonation(access.user),
        )
    except (LightkubeConfigError, OSError, ValueError, ImportError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(
            f"{config.fname or 'the service account'}: no usable kubeconfig: {reason}"
        ) from error
    if server_name := text_of(access.cluster.get("tls-server-name")):

        async def name_server(request: httpx2.Request) -> None:
            request.extensions["sni_hostname"] = server_name

        client.event_hooks = {"request": [name_server]}
    return client


def _info_for_programs(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cluster's section for a credential program, with file contents in place of paths."""
    info = {key: value for key, value in cluster.items() if key not in {_CA_FILE, "extensions"}}
    if path := text_of(cluster.get(_CA_FILE)):
        info[f"{_CA_FILE}-data"] = base64.b64encode(Path(path).read_bytes()).decode()
    extensions = cluster.get("extensions")
    for each in extensions if isinstance(extensions, list) else ():
        if mapping_of(each).get("name") == "client.authentication.k8s.io/exec":
            info["config"] = mapping_of(each).get("extension")
    return info


def _impersonation(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers for impersonating a user."""
    headers = [("Impersonate-User", text_of(user.get("as")))]
    headers += [("Impersonate-Uid", text_of(user.get("as-uid")))]
    headers += [("Impersonate-Group", group) for group in texts_of(user.get("as-groups"))]
    for key, values in mapping_of(user.get("as-user-extra")).items():
        headers += [(f"Impersonate-Extra-{key}", value) for value in texts_of(values)]
    return [(name, value) for name, value in headers if value]
