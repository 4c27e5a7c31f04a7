"""Objects made of others, by operators or charts, with the places where these say each field."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpuscale.base.documents.documents import Document, Path
from gpuscale.ops.lint.parts import Part, whole_document

HPA = "autoscaling/v2", "HorizontalPodAutoscaler"
SCALED_OBJECT = "keda.sh/v1alpha1", "ScaledObject"
DEPLOYMENT = "apps/v1", "Deployment"
LIMITS = "", "Limits"
"""Of an operator that scales by itself: `scaleTargetRef`, `minReplicas`, `maxReplicas`, and no metrics."""


@dataclass(frozen=True, slots=True)
class Made(Document):
    """An object made of another one. Its places are those of the values that it is made of."""

    section: Part
    """What of the other one it is made of."""
    origins: Mapping[Path, Path] = field(repr=False)

    @property
    def is_autoscaler(self) -> bool:
        """Return whether it scales, and is no workload."""
        kind = Part(self, (), self.data).text("kind")
        return kind in {each for _, each in (HPA, SCALED_OBJECT, LIMITS)}

    def line(self, path: Path = ()) -> int | None:
        return written_in(self).line(self.written(path))

    def written(self, path: Path) -> Path:
        for length in range(len(path), 0, -1):
            origin = self.origins.get(path[:length])
            if origin is not None:
                return self.section.document.written((*origin, *path[length:]))
        return self.section.document.written(self.section.path)


def made(
    section: Part,
    version_and_kind: tuple[str, str],
    name: str,
    spec: Mapping[str, object] | Part | None,
    data: Mapping[str, object] | Part | None = None,
) -> Made:
    """Return an object that is made of a part of another one.

    Args:
        section: that part.
        version_and_kind: of what is made.
        name: of what is made.
        spec: with parts of the other object in it, each standing for its value, and left out where it has
            none; a finding about it, or about what is below it, is placed there.
        data: of a ConfigMap, in the same way.
    """
    document = section.document
    meta = whole_document(document).at("metadata")
    origins: dict[Path, Path] = {}
    manifest = {
        "apiVersion": version_and_kind[0],
        "kind": version_and_kind[1],
        "metadata": {
            **{key: meta.at(key) for key in ("namespace", "labels", "annotations")},
            "name": replace(meta.at("name"), data=name),
        },
        "spec": spec,
        "data": data,
    }
    plain = _plain(manifest, (), origins)
    return Made(document.source, document.index, plain, document.lines, section, origins)


Making = Iterator[Made]
"""What an operator makes of one object."""


def hpa_of(section: Part, version_and_kind: tuple[str, str], name: str) -> Made:
    """Return the HPA of a section that has an HPA's fields."""
    spec = {
        "maxReplicas": section.at("maxReplicas"),
        **fields(section),
        "scaleTargetRef": target(version_and_kind, name),
    }
    return made(section, HPA, name, spec)


def limits_of(section: Part, version_and_kind: tuple[str, str], name: str, least: int) -> Made:
    """Return the limits of a section that has an HPA's, and where it has none their least."""
    spec = {
        "scaleTargetRef": target(version_and_kind, name),
        "minReplicas": default(section.at("minReplicas"), least),
        "maxReplicas": section.at("maxReplicas"),
    }
    return made(section, LIMITS, name, spec)


def written_in(document: Document) -> Document:
    """Return the document of a file or cluster that one is made of, or the document itself."""
    while isinstance(document, Made):
        document = document.section.document
    return document


def title_of(document: Document) -> str:
    """Return kind and name of the object that was written."""
    whole = whole_document(written_in(document))
    return f"{whole.text('kind')} {whole.text('metadata', 'name')}"


def _plain(value: object, path: Path, origins: dict[Path, Path]) -> object:
    if isinstance(value, Part):
        origins[path] = value.path
        return value.data
    if isinstance(value, Mapping):
        found = {key: _plain(each, (*path, key), origins) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each, (*path, index), origins) for index, each in enumerate(value)]
    return value


def fields(part: Part, *without: str) -> dict[str, object]:
    """Return the fields of a mapping as parts, without some."""
    return {key: part.at(key) for key in part.fields() if key not in without}


def default(part: Part, value: object) -> Part:
    """Return a part, with a value where it has none."""
    return replace(part, data=value) if part.data is None else part


def as_text(part: Part) -> Part:
    """Return a part with its number as text."""
    return part if part.data is None else replace(part, data=part.text())


def target(version_and_kind: tuple[str, str], name: str) -> dict[str, object]:
    """Return a `scaleTargetRef`."""
    return {"apiVersion": version_and_kind[0], "kind": version_and_kind[1], "name": name}


def name_of(part: Part) -> str:
    """Return the name of the object that a part is of."""
    return whole_document(part.document).text("metadata", "name")
