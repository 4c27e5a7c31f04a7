"""Which programs the tests start, in which versions, and where they are.

The versions stand in one place: the `go.mod` files in `modules`. A program counts as there if
`$KUBEBUILDER_ASSETS` holds it, or if the cache holds it in the pinned version.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpuscale.base.errors import NotFoundError, UnavailableError, UsageError

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
CACHE_VARIABLE = "GPUSCALE_TOOLS"
BUILD_COMMAND = "python -m gpuscale_testing.tools build"
RECORD = "versions.json"

MODULES = Path(__file__).parents[1] / "modules"
"""The go.mod files, our own Go files of `promql-engine` and judges, and the releases of definitions."""
OWN_GO = Path(__file__).parents[1] / "differential"
"""Our own Go files of `hpa-differential`."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One program and the Go package that it is built from."""

    name: str
    folder: str
    """Of its go.mod, below `MODULES`."""
    module: str
    """The module whose version is the program's."""
    package: str
    """Relative where it is ours."""
    apart: bool = False
    """Built only by name: it takes minutes by itself, and few tests need it."""
    is_own: bool = False
    """Built in a module that `programs.differential` makes of Go files of our own."""


TOOLS = (
    Tool("etcd", "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
    *(
        Tool(name, "kubernetes", "k8s.io/kubernetes", f"k8s.io/kubernetes/cmd/{name}")
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ),
    *(
        Tool(name, folder, "k8s.io/kubernetes", "./program", is_own=True)
        for name, folder in (
            ("hpa-differential", "kubernetes"),
            ("hpa-differential-1.36", "kubernetes-1.36"),
        )
    ),
    Tool(
        "prometheus-adapter",
        "prometheus-adapter",
        "sigs.k8s.io/prometheus-adapter",
        "sigs.k8s.io/prometheus-adapter/cmd/adapter",
    ),
    Tool("promql-engine", "prometheus", "github.com/prometheus/prometheus", "./program"),
    Tool("scheduler-judge", "kubernetes", "k8s.io/kubernetes", "./scheduler", apart=True),
    Tool("kueue-judge", "kueue", "sigs.k8s.io/kueue", "./program", apart=True),
    Tool("karpenter-judge", "karpenter", "sigs.k8s.io/karpenter", "./program", apart=True),
    Tool(
        "karpenter-kwok",
        "karpenter",
        "sigs.k8s.io/karpenter",
        "sigs.k8s.io/karpenter/kwok",
        apart=True,
    ),
    *(
        Tool(
            name,
            "keda",
            "github.com/kedacore/keda/v2",
            f"github.com/kedacore/keda/v2/cmd/{command}",
            apart=True,
        )
        for name, command in (
            ("keda-operator", "operator"),
            ("keda-adapter", "adapter"),
            ("keda-webhooks", "webhooks"),
        )
    ),
)
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
KEDA = ("keda-operator", "keda-adapter", "keda-webhooks")
"""Its operator, its metrics server and its admission webhooks."""


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """What is kept about one built program, beside it."""

    version: str
    go: str
    """What `go env GOVERSION` said."""
    size_bytes: int
    build_seconds: float


def tool_named(name: str) -> Tool:
    """Return the program of this name.

    Raises:
        UsageError: there is none.
    """
    for tool in TOOLS:
        if tool.name == name:
            return tool
    names = ", ".join(tool.name for tool in TOOLS)
    raise UsageError(f"found the program {name!r}, expected one of {names}")


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where built programs are kept; it need not be there yet."""
    if chosen := environment.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    caches = environment.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "gpuscale" / "tools"


def pinned_version(tool: Tool) -> str:
    """Return the version to build, such as `v1.37.2`; that of an own program also names its source.

    Raises:
        NotFoundError: no go.mod, or it does not name the module.
    """
    path = MODULES / tool.folder / "go.mod"
    text = path.read_text() if path.is_file() else ""
    found = re.search(rf"^(?:require|\t) ?{re.escape(tool.module)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise NotFoundError(
            f"{path}: no requirement of {tool.module}, which {tool.name} is made of"
        )
    return f"{found[1]}+{_own_digest(tool)}" if tool.package.startswith("./") else found[1]


def _own_digest(tool: Tool) -> str:
    """Return a name for the state of our Go files that a program is made of."""
    files = sorted((OWN_GO if tool.is_own else MODULES / tool.folder).rglob("*.go"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:8]


def read_records(folder: Path) -> dict[str, BuildRecord]:
    """Return what was built into a folder; a record that can't be read counts as none."""
    try:
        entries = json.loads((folder / RECORD).read_text())
        return {name: BuildRecord(**entry) for name, entry in entries.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_records(folder: Path, records: Mapping[str, BuildRecord]) -> None:
    """Replace the records of a folder as a whole."""
    entries = {name: asdict(records[name]) for name in sorted(records)}
    temporary = folder / f".{RECORD}.{os.getpid()}"
    temporary.write_text(json.dumps(entries, indent=2) + "\n")
    temporary.replace(folder / RECORD)


def built(tool: Tool, folder: Path) -> bool:
    """Return whether a folder holds the program in the pinned version."""
    record = read_records(folder).get(tool.name)
    return (
        record is not None
        and record.version == pinned_version(tool)
        and os.access(folder / tool.name, os.X_OK)
    )


def find(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of a program.

    Raises:
        UsageError: no program of gpuscale's set has this name.
        UnavailableError: it is not built; says how to build it.
    """
    path = _path(tool_named(name), environment)
    if path is None:
        raise UnavailableError(_not_there([tool_named(name)], environment))
    return path


def missing(
    names: Sequence[str] = CONTROL_PLANE, environment: Mapping[str, str] = os.environ
) -> str:
    """Return why these programs can't be used, in one sentence; empty if all are there."""
    absent = [tool for tool in map(tool_named, names) if _path(tool, environment) is None]
    return _not_there(absent, environment) if absent else ""


def _path(tool: Tool, environment: Mapping[str, str]) -> Path | None:
    assets = environment.get(ASSETS_VARIABLE)
    if assets and os.access(Path(assets) / tool.name, os.X_OK):
        return Path(assets) / tool.name
    folder = cache_folder(environment)
    return folder / tool.name if built(tool, folder) else None


def _not_there(tools: Sequence[Tool], environment: Mapping[str, str]) -> str:
    absent = ", ".join(f"{tool.name} {pinned_version(tool)}" for tool in tools)
    verb = "is" if len(tools) == 1 else "are"
    assets = environment.get(ASSETS_VARIABLE, "not set")
    return (
        f"{absent} {verb} not there: looked in ${ASSETS_VARIABLE} ({assets}) and "
        f"{cache_folder(environment)}; build once with `{build_command(tools)}`"
    )


def build_command(tools: Sequence[Tool]) -> str:
    """Return the command that builds these programs."""
    if not any(tool.apart for tool in tools):
        return BUILD_COMMAND
    return " ".join((BUILD_COMMAND, *(tool.name for tool in tools)))
