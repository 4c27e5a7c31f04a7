"""The settings of federation members: addresses, credentials, and the metrics that belong to each."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from yarl import URL

from gpuscale.base.documents.shapes import read_shape, schema_of
from gpuscale.base.errors import ConfigError, Problem, UsageError
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.words import closest
from gpuscale.server.metricsapi.wire.paths import CUSTOM_GROUP, EXTERNAL_GROUP

KEDA_LABEL = "scaledobject.keda.sh/name"
"""Label that the selector of every metric of KEDA's has."""
CA_FOLDER = Path("/etc/gpuscale/federation")
"""Where `install` puts the CAs of members: NAME/ca.crt."""
MAX_MEMBERS = 8
MAX_TIMEOUT_S = 5.0
_GROUPS = {"custom": CUSTOM_GROUP, "external": EXTERNAL_GROUP}
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(_LABEL)
_SERVICE = re.compile(rf"({_LABEL})/({_LABEL}):([0-9]{{1,5}})")
_PATTERN = re.compile(r"[^\s,/]{1,253}")


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """One other metrics API."""

    name: str
    url: str
    """https, without a path."""
    server_name: str | None = None
    """The name that its certificate is checked against; None for the host of the address."""
    groups: tuple[str, ...] = (EXTERNAL_GROUP, CUSTOM_GROUP)
    metrics: tuple[str, ...] = ("*",)
    """Names of its metrics, in which `*` is any text."""
    selectors: tuple[str, ...] = ()
    """Labels: an external metric that is asked for with a selector of one of them is its own."""
    ca_file: Path | None = None
    """None for the CAs that the system trusts."""
    insecure: bool = False
    """Whether its certificate is not checked."""
    token_file: Path | None = None
    """None with `client_files` for none, else for that of the pod's service account."""
    client_files: tuple[Path, Path] | None = None
    """Certificate and key."""
    timeout_s: float = MAX_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class _Usual:
    """The defaults for a well-known project, such as KEDA."""

    target: str
    groups: tuple[str, ...]
    metrics: tuple[str, ...] = ("*",)
    selectors: tuple[str, ...] = ()


USUAL: Mapping[str, _Usual] = {
    "keda": _Usual("keda/keda-operator-metrics-apiserver:443", ("external",), (), (KEDA_LABEL,)),
    "datadog": _Usual("datadog/datadog-cluster-agent-metrics-api:8443", ("external",)),
    "prometheus-adapter": _Usual("monitoring/prometheus-adapter:443", ("custom", "external")),
}
"""By the name of the member: the Service that the project's Helm chart makes, and its metrics."""


@dataclass(frozen=True, slots=True)
class MemberEntry:
    """A member as written in a federation file or in the flag's options."""

    name: str
    target: str = ""
    groups: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    selectors: list[str] = field(default_factory=list)
    caFile: str = ""
    insecure: bool = False
    tokenFile: str = ""
    certFile: str = ""
    keyFile: str = ""
    serverName: str = ""
    timeout: str = ""

    def __post_init__(self) -> None:
        member_of(self)


@dataclass(frozen=True, slots=True)
class _File:
    """The model of a federation file."""

    members: list[MemberEntry]


_LISTS = frozenset({"groups", "metrics", "selectors"})
_OPTIONS = tuple(each.name for each in fields(MemberEntry) if each.name not in {"name", "target"})


def member_of_flag(text: str) -> MemberSettings:
    """Return the member of `NAME`, `NAME=TARGET`, and options behind commas: `,caFile=/ca.crt`.

    Raises:
        ValueError: it is none.
    """
    first, *rest = (part.strip() for part in text.split(","))
    name, _, target = first.partition("=")
    given: dict[str, list[str]] = {}
    for part in rest:
        key, _, value = part.partition("=")
        if key not in _OPTIONS:
            meant = closest(key, _OPTIONS)
            known = f"{meant}" if meant else ", ".join(_OPTIONS)
            raise ValueError(f"found the option {key!r}, expected {known}")
        if key in given and key not in _LISTS:
            raise ValueError(f"found {key} twice, expected it once")
        if (key == "insecure") is bool(value):
            raise ValueError(
                f"found {part!r}, expected {'insecure' if key == 'insecure' else f'{key}=...'}"
            )
        given.setdefault(key, []).append(value)
    lists = {key: values for key, values in given.items() if key in _LISTS}
    texts = {key: values[0] for key, values in given.items() if key not in _LISTS | {"insecure"}}
    entry = MemberEntry(name, target, insecure="insecure" in given, **lists, **texts)  # type: ignore[arg-type]
    return member_of(entry)


def members_of_file(path: Path) -> tuple[MemberSettings, ...]:
    """Return the members that a federation file lists.

    Raises:
        ConfigError: the file's content is wrong.
        UsageError: it can't be read.
    """
    # Imported late: few servers have such a file, and the command line loads settings without
    # YAML.
    from gpuscale.base.documents.documents import load_documents
    from gpuscale.base.documents.validation import validation_problems

    try:
        documents = load_documents(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: can't be read: {reason}") from error
    if len(documents) != 1:
        found = f"{len(documents)} documents" if documents else "an empty file"
        raise ConfigError(Problem(str(path), None, None, found, "one document with `members`"))
    file, faults = read_shape(_File, documents[0].data)
    if file is None:
        raise ConfigError(*validation_problems(documents[0], faults, lambda: schema_of(_File)))
    return tuple(member_of(each) for each in file.members)


def member_of(entry: MemberEntry) -> MemberSettings:
    """Return the member's settings, with the defaults of a well-known name filled in.

    Raises:
        ValueError: a value can't be.
    """
    if not _NAME.fullmatch(entry.name):
        raise ValueError(
            f"found the name {entry.name!r}, expected lower-case letters, digits and '-'"
        )
    usual = USUAL.get(entry.name)
    if usual is None and not entry.target:
        meant = closest(entry.name, USUAL)
        raise ValueError(
            f"found {entry.name!r} without an address, expected {meant or entry.name + '=TARGET'}, "
            f"or one of {', '.join(USUAL)}"
        )
    target = entry.target or (usual.target if usual is not None else "")
    url, server_name = _address(target)
    usual = usual or _Usual("", tuple(_GROUPS))
    owns = entry.metrics or entry.selectors
    return MemberSettings(
        entry.name,
        url,
        entry.serverName or server_name,
        _groups(tuple(entry.groups) or usual.groups),
        _patterns(tuple(entry.metrics) if owns else usual.metrics),
        tuple(entry.selectors) if owns else usual.selectors,
        _ca_file(entry, is_service=server_name is not None),
        entry.insecure,
        Path(entry.tokenFile) if entry.tokenFile else None,
        _pair(entry),
        _timeout_s(entry.timeout),
    )


def together(members: Sequence[MemberSettings], fault: Callable[[str], None]) -> None:
    """Report conflicts between members: a name, metric or pattern may belong to one member only."""
    if len(members) > MAX_MEMBERS:
        fault(f"--federate: found {len(members)} members, expected at most {MAX_MEMBERS}")
    owners: dict[tuple[str, str], str] = {}
    names: set[str] = set()
    for member in members:
        if member.name in names:
            fault(f"--federate: found {member.name} twice, expected different names")
        names.add(member.name)
        for group in member.groups:
            for pattern in (*member.metrics, *(f"selector {each}" for each in member.selectors)):
                owner = owners.setdefault((group, pattern), member.name)
                if owner != member.name:
                    fault(
                        f"--federate: found {pattern} of {group} for {owner} and {member.name}, "
                        "expected one owner; give metrics=... to one of them"
                    )


def _address(target: str) -> tuple[str, str | None]:
    """Return the base address of a target, and the name of its certificate where that is a Service's."""
    if service := _SERVICE.fullmatch(target):
        namespace, name, port = service.groups()
        # The address and certificate name that the API server's aggregator uses.
        host = f"{name}.{namespace}.svc"
        if 0 < int(port) < 65536:
            return f"https://{host}:{port}", host
    wrong = f"found the address {target!r}, expected NAMESPACE/SERVICE:PORT or https://HOST[:PORT]"
    try:
        url = URL(target)
        is_good = url.scheme == "https" and bool(url.host) and url.path in {"", "/"}
    except ValueError:
        raise ValueError(wrong) from None
    if not is_good or url.user or url.query_string or url.fragment:
        raise ValueError(wrong)
    return str(url.origin()), None


def _groups(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in _GROUPS:
            raise ValueError(f"found the group {name!r}, expected custom or external")
    return tuple(_GROUPS[name] for name in dict.fromkeys(names))


def _patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise ValueError(f"found the metric {pattern!r}, expected a name such as s0-* or queue")
    return tuple(dict.fromkeys(patterns))


def _ca_file(entry: MemberEntry, *, is_service: bool) -> Path | None:
    if entry.insecure and entry.caFile:
        raise ValueError("found caFile and insecure, expected one of them")
    if entry.caFile or entry.insecure:
        return Path(entry.caFile) if entry.caFile else None
    mounted = CA_FOLDER / entry.name / "ca.crt"
    if mounted.exists():
        return mounted
    if is_service:
        raise ValueError(
            f"found {entry.name} without a CA, expected caFile=FILE with the CA of its certificate, a file "
            f"{mounted}, or insecure"
        )
    return None


def _pair(entry: MemberEntry) -> tuple[Path, Path] | None:
    if not entry.certFile and not entry.keyFile:
        return None
    if not entry.certFile or not entry.keyFile:
        raise ValueError("found one of certFile and keyFile, expected both")
    return Path(entry.certFile), Path(entry.keyFile)


def _timeout_s(text: str) -> float:
    if not text:
        return MAX_TIMEOUT_S
    timeout_s = parse_duration_ms(text) / 1000
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise ValueError(f"found the timeout {text}, expected more than 0s, at most 5s")
    return timeout_s
