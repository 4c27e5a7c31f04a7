"""Kubeconfig files: found and merged as kubectl does, and reduced to one context.

Source: k8s.io/client-go v0.36 tools/clientcmd/loader.go (ClientConfigLoadingRules, ResolveLocalPaths) and
tools/clientcmd/client_config.go (the service account where no file is found).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError, GpuscaleError, UsageError
from gpuscale.base.words import closest
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.kube.json_values import mapping_of

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
VARIABLE = "KUBECONFIG"
_LISTS = ("clusters", "contexts", "users")
_PATHS = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}


@dataclass(frozen=True, slots=True)
class ClusterName:
    """A cluster's name in a kubeconfig, for people to recognise."""

    server: str
    context: str
    """Empty in a pod."""
    namespace: str
    """The context's, `default` where it has none."""

    def __str__(self) -> str:
        return f"{self.server}, context {self.context}" if self.context else self.server


@dataclass(frozen=True, slots=True)
class Access:
    """One context of a kubeconfig, or a pod's service account: server address and credentials."""

    config: "SingleConfig"
    cluster: Mapping[str, Any]
    """Its section as it stands in the file; empty in a pod."""
    user: Mapping[str, Any]
    """Its section as it stands in the file; empty in a pod."""


def find_kubeconfigs(named: Path | None, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files that kubectl would read; none in a pod without any.

    They are the named one; else those of $KUBECONFIG that exist; else ~/.kube/config.

    Args:
        named: `--kubeconfig`; has to exist, which is seen when it is read.
        environment: variables of this process.

    Raises:
        UsageError: there is none, and this is not a pod.
    """
    if named is not None:
        return (named.expanduser(),)
    # Without $HOME, Python asks the system's user database, and Go does not: then there is no such
    # file.
    home = environment.get("HOME", "")
    usual = Path(home) / ".kube" / "config"
    listed = [Path(each) for each in environment.get(VARIABLE, "").split(os.pathsep) if each]
    candidates = listed or ([usual] if home else [])
    found = tuple(path for path in candidates if path.exists())
    if found or (SERVICE_ACCOUNT / "token").exists():
        return found
    where = (
        f"${VARIABLE} names {os.pathsep.join(map(str, listed))}, which does not exist"
        if listed
        else f"${VARIABLE} is not set, and {usual if home else '~/.kube/config'} does not exist"
    )
    raise UsageError(
        f"found no kubeconfig: {where}; name one with --kubeconfig FILE, "
        f"or set ${VARIABLE} as for kubectl"
    )


def read_kubeconfig(settings: KubeSettings) -> Access:
    """Read the context that the settings name.

    Raises:
        UsageError: there is no usable kubeconfig or service account.
        ConfigError: the kubeconfig is no YAML.
    """
    # Imported late: the node agent needs only what `plain` reads of a kubeconfig.
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.config.models import User

    data: Mapping[str, Any] = {}
    try:
        if settings.kubeconfig is None:
            config = KubeConfig.from_service_account(str(SERVICE_ACCOUNT)).get()
        else:
            files = (settings.kubeconfig, *settings.more_kubeconfigs)
            data = merged_kubeconfig(files)
            _check_context(data, settings.context)
            config = KubeConfig.from_dict(data, fname=files[0]).get(settings.context)
    except ConfigError:
        raise
    except Exception as error:  # a file of another shape can fail in many ways
        raise UsageError(_message(settings, error)) from error
    if config is None:
        raise UsageError(_message(settings, ValueError("it names no context")))
    cluster = section(data, "cluster", config.context.cluster)
    user = section(data, "user", config.context.user)
    return Access(
        config if config.user is not None else config._replace(user=User()), cluster, user
    )


def cluster_name(settings: KubeSettings) -> ClusterName:
    """Return the cluster that the settings lead to.

    Raises:
        UsageError: there is no usable kubeconfig or service account.
        ConfigError: the kubeconfig is no YAML.
    """
    config = read_kubeconfig(settings).config
    context = config.context_name if settings.kubeconfig is not None else ""
    return ClusterName(config.cluster.server, context, config.namespace)


def contexts(environment: Mapping[str, str]) -> list[str]:
    """Return the names of kubectl's contexts; none if its files can't be read.

    Args:
        environment: variables of this process.
    """
    try:
        found = merged_kubeconfig(find_kubeconfigs(None, environment)).get("contexts")
    except (GpuscaleError, OSError, ValueError):
        return []
    return [str(_name(each)) for each in (found if isinstance(found, list) else ())]


def merged_kubeconfig(files: Sequence[Path]) -> dict[str, Any]:
    """Return files as one: of entries of the same name, and of the current context, the first file's wins.

    Raises:
        OSError: a file can't be read.
        ValueError: a file holds something else than a mapping.
        ConfigError: a file is no YAML.
    """
    merged: dict[str, Any] = {}
    for path in files:
        data = _absolute(_mapping(path), path.parent)
        for key, value in data.items():
            if key in _LISTS and isinstance(value, list) and isinstance(merged.get(key), list):
                known = {_name(each) for each in merged[key]}
                merged[key] = [*merged[key], *(each for each in value if _name(each) not in known)]
            elif not merged.get(key):
                merged[key] = value
    return merged


def _mapping(path: Path) -> dict[str, Any]:
    documents = load_documents(path.read_text(errors="replace"), str(path))
    data = documents[0].data if documents else None
    if not isinstance(data, dict):
        raise ValueError("it holds no mapping")
    return data


def _absolute(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a file's content with its relative paths made absolute."""
    for key, kind in (("clusters", "cluster"), ("users", "user")):
        entries = data.get(key)
        for entry in entries if isinstance(entries, list) else ():
            fields = entry.get(kind) if isinstance(entry, dict) else None
            if not isinstance(fields, dict):
                continue
            for field in [name for name, value in fields.items() if value in ("", None)]:
                del fields[field]  # counts as absent, as an empty token is none
            for field in _PATHS[kind]:
                if isinstance(fields.get(field), str):
                    fields[field] = str((folder / fields[field]).absolute())
            program = fields.get("exec")
            command = program.get("command") if isinstance(program, dict) else None
            # A bare program name is looked up in $PATH.
            if isinstance(program, dict) and isinstance(command, str) and os.sep in command:
                program["command"] = str((folder / command).absolute())
    return data


def section(data: Mapping[str, Any], kind: str, name: str | None) -> Mapping[str, Any]:
    """Return a cluster's or user's section of a kubeconfig; empty if there is none."""
    entries = data.get(f"{kind}s")
    for entry in entries if isinstance(entries, list) else ():
        if name is not None and _name(entry) == name:
            return mapping_of(entry.get(kind))
    return {}


def _name(entry: object) -> object:
    return entry.get("name") if isinstance(entry, dict) else None


def _check_context(data: Mapping[str, Any], wanted: str | None) -> None:
    """Raise ValueError where the wanted context is not one of the file's."""
    contexts = data.get("contexts")
    if not isinstance(contexts, list):
        return
    known = [str(_name(each)) for each in contexts]
    listed = f"expected one of: {', '.join(known)}" if known else "and there is none in it"
    name = wanted or data.get("current-context")
    if not name:
        raise ValueError(f"found no current context, {listed}; name one with --context")
    if name not in known:
        close = closest(str(name), known)
        advice = f"; did you mean {close}?" if close else ""
        raise ValueError(f"found no context {name!r}, {listed}{advice}")


def _message(settings: KubeSettings, error: Exception) -> str:
    if settings.kubeconfig is None:
        return (
            f"no service account to reach the API server with ({error}); "
            "run in a pod that has one, or name a kubeconfig"
        )
    reason = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    files = os.pathsep.join(map(str, (settings.kubeconfig, *settings.more_kubeconfigs)))
    return f"{files}: no usable kubeconfig: {reason}"
