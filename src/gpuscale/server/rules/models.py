"""The models of rule files: their keys, and the type of each.

Source: prometheus-adapter v0.12.0 pkg/config (config.go); the Helm chart prometheus-community/
prometheus-adapter 5.3.0 (values.yaml, the keys under `rules`).
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from gpuscale.base.documents.shapes import under


@dataclass(frozen=True)
class GroupResourceModel:
    """A Kubernetes resource, singular or plural."""

    resource: str
    group: str = ""


@dataclass(frozen=True)
class ResourcesModel:
    """The model of `resources`: which label names which resource."""

    overrides: dict[str, GroupResourceModel] = field(default_factory=dict)
    template: str = ""
    namespaced: bool = True


@dataclass(frozen=True)
class NameModel:
    """The model of `name`: how the API names a metric."""

    matches: str = ""
    expansion: str = field(default="", metadata=under("as"))


@dataclass(frozen=True)
class FilterModel:
    """A condition on series names: `is` or `isNot`."""

    matching: str = field(default="", metadata=under("is"))
    not_matching: str = field(default="", metadata=under("isNot"))

    def __post_init__(self) -> None:
        """Check that there is exactly one condition.

        Raises:
            ValueError: there are two, or none.
        """
        if bool(self.matching) == bool(self.not_matching):
            count = "both `is` and `isNot`" if self.matching else "neither `is` nor `isNot`"
            raise ValueError(f"found {count}, expected exactly one of them in a filter")


@dataclass(frozen=True)
class PartModel:
    """One limit of a combined metric."""

    query: str
    threshold: Any
    name: str = ""


@dataclass(frozen=True)
class RuleModel:
    """One entry of `rules` or `externalRules`."""

    series_query: str = field(default="", metadata=under("seriesQuery"))
    series_filters: list[FilterModel] = field(default_factory=list, metadata=under("seriesFilters"))
    resources: ResourcesModel = ResourcesModel()
    name: NameModel = NameModel()
    metrics_query: str = field(default="", metadata=under("metricsQuery"))
    nan: Literal["absent", "zero"] = "absent"
    """Ours: prometheus-adapter, where NaN is zero, refuses the key."""
    parts: list[PartModel] = field(default_factory=list)
    """Ours, in place of `metricsQuery`: limits, of which the fullest counts."""

    def __post_init__(self) -> None:
        """Check that a rule has either a query or parts.

        Raises:
            ValueError: there are both, or parts that are read in two ways.
        """
        if self.parts and self.metrics_query:
            raise ValueError("found both `metricsQuery` and `parts`, expected one of them")
        if self.parts and self.nan == "zero":
            raise ValueError(
                "found `nan: zero` beside `parts`, expected none: a part without a number is absent; "
                "say what counts instead in its own query"
            )


@dataclass(frozen=True)
class ResourceRuleModel:
    """The query and container label for CPU, or for memory."""

    container_query: str = field(default="", metadata=under("containerQuery"))
    node_query: str = field(default="", metadata=under("nodeQuery"))
    resources: ResourcesModel = ResourcesModel()
    container_label: str = field(default="", metadata=under("containerLabel"))


@dataclass(frozen=True)
class ResourceRulesModel:
    """The value of `resourceRules`."""

    cpu: ResourceRuleModel = ResourceRuleModel()
    memory: ResourceRuleModel = ResourceRuleModel()
    window: str = "0s"


@dataclass(frozen=True)
class AdapterFileModel:
    """The adapter's own configuration file."""

    rules: list[RuleModel] = field(default_factory=list)
    external_rules: list[RuleModel] = field(default_factory=list, metadata=under("externalRules"))
    resource_rules: ResourceRulesModel | None = field(default=None, metadata=under("resourceRules"))


@dataclass(frozen=True)
class HelmRulesModel:
    """The chart's `rules` value."""

    default: bool = True
    custom: list[RuleModel] = field(default_factory=list)
    external: list[RuleModel] = field(default_factory=list)
    existing: Any = None
    resource: ResourceRulesModel | None = None


@dataclass(frozen=True)
class HelmValuesModel:
    """Values of the chart; only `rules` is read."""

    takes_more_keys: ClassVar[bool] = True

    rules: HelmRulesModel
