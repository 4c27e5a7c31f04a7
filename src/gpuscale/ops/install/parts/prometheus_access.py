"""The metrics API's credentials for Prometheus: files of one volume, arguments, and variables."""

from gpuscale.ops.install.common import Object
from gpuscale.ops.install.prometheus_auth import KeyReference, PrometheusAuth, SecretOrConfigMap
from gpuscale.ops.install.values import Values

FOLDER = "/etc/gpuscale/prometheus"
_VOLUME = "prometheus-auth"
_USER = "PROMETHEUS_USERNAME"


def _auth(values: Values) -> PrometheusAuth:
    return PrometheusAuth() if values.spec.has_streams else values.spec.prometheus.auth


def arguments(values: Values) -> list[str]:
    """Return the metrics API's arguments about who it is."""
    auth = _auth(values)
    tls, basic = auth.tls_config, auth.basic_auth
    found = []
    if values.spec.prometheus.identity is not None and not values.spec.has_streams:
        found.append("--prometheus-identity=azure-workload")
    if auth.authorization is not None:
        found.append(f"--prometheus-token-file={FOLDER}/token")
    if basic is not None:
        user = basic.username if isinstance(basic.username, str) else f"$({_USER})"
        found.append(f"--prometheus-username={user}")
        found.append(f"--prometheus-password-file={FOLDER}/password")
    for index, (name, value) in enumerate(sorted(auth.headers.items())):
        shown = value if isinstance(value, str) else f"$({_variable(index)})"
        found.append(f"--prometheus-header={name}={shown}")
    if tls.ca is not None:
        found.append(f"--prometheus-ca-file={FOLDER}/ca.crt")
    if tls.cert is not None:
        found.append(f"--prometheus-client-tls-cert-file={FOLDER}/tls.crt")
        found.append(f"--prometheus-client-tls-key-file={FOLDER}/tls.key")
    return found


def environment(values: Values) -> list[Object]:
    """Return the variables that the arguments name: what has no flag for a file."""
    auth = _auth(values)
    given: list[tuple[str, str | KeyReference]] = []
    if auth.basic_auth is not None:
        given.append((_USER, auth.basic_auth.username))
    headers = sorted(auth.headers.items())
    given += [(_variable(index), value) for index, (_, value) in enumerate(headers)]
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": key.name, "key": key.key}}}
        for name, key in given
        if isinstance(key, KeyReference)
    ]


def _variable(index: int) -> str:
    return f"PROMETHEUS_HEADER_{index}"


def mounts(values: Values) -> list[Object]:
    """Return the mount of the files; a folder, so that what is renewed arrives without a restart."""
    if not _sources(values):
        return []
    return [{"name": _VOLUME, "mountPath": FOLDER, "readOnly": True}]


def volumes(values: Values) -> list[Object]:
    """Return the volume that puts keys of several Secrets into one folder; none without files."""
    sources = _sources(values)
    if not sources:
        return []
    return [{"name": _VOLUME, "projected": {"defaultMode": 0o440, "sources": sources}}]


def _sources(values: Values) -> list[Object]:
    auth = _auth(values)
    found = []
    if auth.authorization is not None:
        found.append(_source("secret", auth.authorization.credentials, "token"))
    if auth.basic_auth is not None:
        found.append(_source("secret", auth.basic_auth.password, "password"))
    for given, path in ((auth.tls_config.ca, "ca.crt"), (auth.tls_config.cert, "tls.crt")):
        found += _either(given, path)
    if auth.tls_config.key_secret is not None:
        found.append(_source("secret", auth.tls_config.key_secret, "tls.key"))
    return found


def _either(given: SecretOrConfigMap | None, path: str) -> list[Object]:
    if given is None:
        return []
    kinds = {"secret": given.secret, "configMap": given.config_map}
    return [_source(kind, key, path) for kind, key in kinds.items() if key is not None]


def _source(kind: str, key: KeyReference, path: str) -> Object:
    return {kind: {"name": key.name, "items": [{"key": key.key, "path": path}]}}
