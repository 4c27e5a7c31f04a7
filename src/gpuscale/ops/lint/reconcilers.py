"""What applies manifests again and again: Argo CD's Applications and Flux' Kustomizations among the files.

Source: Argo CD 3.1 docs/user-guide/diffing.md, sync-options.md (RespectIgnoreDifferences).
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

from gpuscale.ops.lint.parts import Part

_GROUPS = {
    "Application": "argoproj.io",
    "ApplicationSet": "argoproj.io",
    "Kustomization": "kustomize.toolkit.fluxcd.io",
}
_REPLICAS = "spec/replicas"


@dataclass(frozen=True, slots=True)
class Reconciler:
    """An object that has the manifests of folders applied."""

    part: Part
    manager: str
    """Of the fields that it sets, on a cluster."""
    folders: tuple[str, ...]
    """In a repository."""
    leaves_replicas: bool
    """Whether it neither compares nor writes `spec.replicas`."""

    def applies(self, file: str) -> bool:
        """Return whether a file is in one of its folders, or below."""
        parents = [each.as_posix() for each in PurePosixPath(file).parents]
        return any(
            parent == folder or parent.endswith(f"/{folder}")
            for parent in parents
            for folder in self.folders
        )


def reconciler_of(whole: Part) -> Reconciler | None:
    """Return what an object has applied; None for objects of other kinds."""
    kind = whole.text("kind")
    if whole.text("apiVersion").rpartition("/")[0] != _GROUPS.get(kind):
        return None
    if kind == "Kustomization":
        folders = _folders((whole.text("spec", "path"),))
        return Reconciler(whole, "kustomize-controller", folders, leaves_replicas=False)
    spec = whole.at(*(("spec", "template", "spec") if kind == "ApplicationSet" else ("spec",)))
    sources = (spec.at("source"), *spec.items("sources"))
    ignored = [
        text
        for each in spec.items("ignoreDifferences")
        for text in (*each.texts("jsonPointers"), *each.texts("jqPathExpressions"))
    ]
    respects = "RespectIgnoreDifferences=true" in spec.at("syncPolicy").texts("syncOptions")
    leaves = any(each.strip("./").replace(".", "/") == _REPLICAS for each in ignored)
    folders = _folders(tuple(each.text("path") for each in sources))
    return Reconciler(whole, "argocd-controller", folders, leaves and respects)


def _folders(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip("./") for each in paths)))
