"""The shape of rule files: which keys there are and what type each has.

Source: prometheus-adapter v0.12.0 pkg/config (config.go); the Helm chart prometheus-community/
prometheus-adapter 5.3.0 (values.yaml, the keys under `rules`).
"""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Model(BaseModel):
    """A mapping with known keys only; a key without a value counts as absent, as in Go."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, data: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


class GroupResourceModel(_Model):
    """A Kubernetes resource, singular or plural."""

    group: str = ""
    resource: str


class ResourcesModel(_Model):
    """Which label stands for which resource."""

    overrides: dict[str, GroupResourceModel] = {}
    template: str = ""
    namespaced: bool = True


class NameModel(_Model):
    """How the API names a metric."""

    matches: str = ""
    expansion: str = Field("", alias="as")


class FilterModel(_Model):
    """A condition on the name of a series: one of the two."""

    matching: str = Field("", alias="is")
    not_matching: str = Field("", alias="isNot")

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if bool(self.matching) == bool(self.not_matching):
            count = "both `is` and `isNot`" if self.matching else "neither `is` nor `isNot`"
            raise ValueError(f"found {count}, expected exactly one of them in a filter")
        return self


class RuleModel(_Model):
    """One entry of `rules` or `externalRules`."""

    series_query: str = Field(alias="seriesQuery")
    series_filters: list[FilterModel] = Field([], alias="seriesFilters")
    resources: ResourcesModel = ResourcesModel()
    name: NameModel = NameModel.model_validate({})
    metrics_query: str = Field("", alias="metricsQuery")


class ResourceRuleModel(_Model):
    """How to ask for CPU, or for memory."""

    container_query: str = Field("", alias="containerQuery")
    node_query: str = Field("", alias="nodeQuery")
    resources: ResourcesModel = ResourcesModel()
    container_label: str = Field("", alias="containerLabel")


class ResourceRulesModel(_Model):
    """The value of `resourceRules`."""

    cpu: ResourceRuleModel = ResourceRuleModel.model_validate({})
    memory: ResourceRuleModel = ResourceRuleModel.model_validate({})
    window: str = "0s"


class AdapterFileModel(_Model):
    """The adapter's own configuration file."""

    rules: list[RuleModel] = []
    external_rules: list[RuleModel] = Field([], alias="externalRules")
    resource_rules: ResourceRulesModel | None = Field(None, alias="resourceRules")


class HelmRulesModel(_Model):
    """What the chart has under `rules`."""

    default: bool = True
    custom: list[RuleModel] = []
    external: list[RuleModel] = []
    existing: Any = None
    resource: ResourceRulesModel | None = None


class HelmValuesModel(_Model):
    """Values of the chart; only `rules` is read."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    rules: HelmRulesModel
