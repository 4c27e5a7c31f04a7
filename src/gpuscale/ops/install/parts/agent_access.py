"""How those who scrape the node agents reach them over TLS: arguments, files of Secrets, scrape settings."""

from gpuscale.ops.install.common import Object, agent_service
from gpuscale.ops.install.values import Values

FOLDER = "/etc/gpuscale/agents"
PROMETHEUS_FOLDER = "/etc/prometheus/node-agent"
"""Where a Prometheus has the same files; a Prometheus of your own needs them there too."""
_VOLUME = "agent-access"
_USER = "AGENT_USERNAME"


def has_tls(values: Values) -> bool:
    """Return whether the agents are reached by HTTPS."""
    return values.spec.agent.enabled and values.spec.agent.tls.secret is not None


def _client_secret(values: Values) -> str | None:
    return values.spec.agent.basic_auth.client_secret if has_tls(values) else None


def _server_name(values: Values) -> str:
    usual = f"{agent_service(values)}.{values.spec.namespace}.svc"
    return values.spec.agent.tls.server_name or usual


def arguments(values: Values) -> list[str]:
    """Return the arguments of what follows the agents' streams."""
    if not has_tls(values):
        return []
    user = [f"--agent-username=$({_USER})", f"--agent-password-file={FOLDER}/password"]
    return [
        f"--agent-ca-file={FOLDER}/ca.crt",
        f"--agent-server-name={_server_name(values)}",
        *(user if _client_secret(values) else ()),
    ]


def environment(values: Values) -> list[Object]:
    """Return the variables that the arguments name: what has no flag for a file."""
    name = _client_secret(values)
    if name is None or not values.spec.has_streams:
        return []
    return [{"name": _USER, "valueFrom": {"secretKeyRef": {"name": name, "key": "username"}}}]


def mounts(values: Values) -> list[Object]:
    """Return the mount of the files, of what follows the agents' streams."""
    return [_mount(FOLDER)] if has_tls(values) and values.spec.has_streams else []


def volumes(values: Values) -> list[Object]:
    """Return their volume."""
    return [_volume(values, "password")] if mounts(values) else []


def prometheus_mounts(values: Values) -> list[Object]:
    """Return the mount of the files, of the installation's own Prometheus."""
    return [_mount(PROMETHEUS_FOLDER)] if has_tls(values) else []


def prometheus_volumes(values: Values) -> list[Object]:
    """Return their volume."""
    return [_volume(values, "username", "password")] if has_tls(values) else []


def _mount(folder: str) -> Object:
    # A folder, so that what is renewed arrives without a restart.
    return {"name": _VOLUME, "mountPath": folder, "readOnly": True}


def _volume(values: Values, *credentials: str) -> Object:
    # The CA alone: the agents' Secret has their key too.
    sources = [_source(str(values.spec.agent.tls.secret), "ca.crt")]
    if name := _client_secret(values):
        sources.append(_source(name, *credentials))
    return {"name": _VOLUME, "projected": {"defaultMode": 0o440, "sources": sources}}


def _source(name: str, *keys: str) -> Object:
    return {"secret": {"name": name, "items": [{"key": key, "path": key} for key in keys]}}


def scrape_settings(values: Values) -> Object:
    """Return what a scrape job of the agents says of TLS and of who asks."""
    if not has_tls(values):
        return {}
    folder = PROMETHEUS_FOLDER
    user = {"username_file": f"{folder}/username", "password_file": f"{folder}/password"}
    return {
        "scheme": "https",
        "tls_config": {"ca_file": f"{folder}/ca.crt", "server_name": _server_name(values)},
        **({"basic_auth": user} if _client_secret(values) else {}),
    }


def endpoint_settings(values: Values) -> Object:
    """Return the same for an endpoint of a ServiceMonitor."""
    if not has_tls(values):
        return {}
    secret = {"name": values.spec.agent.tls.secret, "key": "ca.crt"}
    name = _client_secret(values)
    user = {key: {"name": name, "key": key} for key in ("username", "password")}
    return {
        "scheme": "https",
        "tlsConfig": {"ca": {"secret": secret}, "serverName": _server_name(values)},
        **({"basicAuth": user} if name else {}),
    }
