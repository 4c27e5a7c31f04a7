"""A rule's `resources`: which label names which Kubernetes resource, in both directions.

Source: prometheus-adapter v0.12.0 pkg/naming (resource_converter.go, lbl_res.go). Where two labels stand
for one resource, upstream asks for a random one of them; here it is the first in the file.
"""

from collections.abc import Iterable, Mapping

from gpuscale.base.errors import NotFoundError
from gpuscale.base.golang.template import Template, TemplateError, parse_template
from gpuscale.base.regex import Pattern, compile_re2
from gpuscale.server.rules.resources import ResourceMapper, ResourceType, UnknownResourceError

_FIELDS = frozenset({"Group", "Resource"})
_MAX_REMEMBERED = 10_000
"""Label names whose resource is kept; label names come from outside."""


class NoLabelError(NotFoundError):
    """A rule maps the resource to no label."""

    def __init__(self, resource: ResourceType) -> None:
        self.resource = resource
        super().__init__(
            f"unable to convert resource {resource.name} into label: "
            "no generic resource label form specified for this metric"
        )


class LabelTemplate:
    """A template for label names that contain a resource's singular name, and maybe its group."""

    def __init__(self, text: str) -> None:
        """Compile the template.

        Raises:
            TemplateError: not a template, or one that leaves out the resource.
            ValueError: the text around the resource is no RE2.
        """
        self._template: Template = parse_template(text, _FIELDS)
        self._pattern: Pattern = compile_re2(
            f"^{self._render('(?P<group>.+?)', '(?P<resource>.+?)')}$"
        )
        if "resource" not in self._pattern.groupindex:
            raise TemplateError("must include at least <<.Resource>> in the label template")

    def label_for(self, resource: ResourceType) -> str:
        group = resource.group.replace(".", "_").replace("-", "_")
        return self._render(group, resource.singular)

    def split(self, label: str) -> tuple[str, str] | None:
        """Return the resource and group in a label name; None if it doesn't match the template."""
        match = self._pattern.search(label)
        if match is None:
            return None
        group = match.group("group") if "group" in self._pattern.groupindex else ""
        return match.group("resource") or "", group or ""

    def _render(self, group: str, resource: str) -> str:
        return self._template.render({"Group": group, "Resource": resource})


class ResourceLabels:
    """The mapping of one rule, from resources to labels and back."""

    def __init__(
        self,
        overrides: Mapping[str, ResourceType],
        template: LabelTemplate | None,
        mapper: ResourceMapper,
    ) -> None:
        self.overrides = overrides
        self._template = template
        self._mapper = mapper
        self._resources: dict[str, ResourceType | None] = dict(overrides)
        self._labels: dict[ResourceType, str] = {}
        for label, resource in overrides.items():
            self._labels.setdefault(resource, label)

    @property
    def has_template(self) -> bool:
        """Return whether labels without an override may name a resource too."""
        return self._template is not None

    def label_for(self, resource: ResourceType) -> str:
        """Return the label that names a resource.

        Raises:
            NoLabelError: no override names it, and there is no template.
        """
        known = self._labels.get(resource)
        if known is not None:
            return known
        if self._template is None:
            raise NoLabelError(resource)
        label = self._template.label_for(resource)
        self._labels[resource] = label
        return label

    def resource_for(self, label: str) -> ResourceType | None:
        """Return the resource that a label names, or None."""
        if label not in self._resources:
            if len(self._resources) > _MAX_REMEMBERED:
                self._resources = dict(self.overrides)
            self._resources[label] = self._by_template(label)
        return self._resources[label]

    def resources_of(self, labels: Iterable[str]) -> tuple[ResourceType, ...]:
        """Return the resources that a series' labels name, each once."""
        found = (self.resource_for(label) for label in labels)
        return tuple(dict.fromkeys(resource for resource in found if resource is not None))

    def _by_template(self, label: str) -> ResourceType | None:
        parts = self._template.split(label) if self._template is not None else None
        if parts is None:
            return None
        try:
            return self._mapper.find(*parts)
        except UnknownResourceError:
            return None
