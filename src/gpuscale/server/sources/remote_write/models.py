"""What models of files in Prometheus' format share, and their smaller parts."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.series.remote_write import Action, RelabelRule


def _seconds(value: object) -> float:
    if not isinstance(value, str):
        raise ValueError(f"found {value!r}, expected a duration such as 5s or 30ms")
    return parse_duration_ms(value) / 1000


Seconds = Annotated[float, BeforeValidator(_seconds)]


class FileModel(BaseModel):
    """A model without unknown keys; a key without a value counts as absent."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, data: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


class RelabelModel(FileModel):
    """One rule of `write_relabel_configs`."""

    source_labels: list[str] = []
    separator: str = ";"
    regex: str = "(.*)"
    modulus: int = Field(0, ge=0)
    target_label: str = ""
    replacement: str = "$1"
    action: Action = "replace"

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        self.rule()
        return self

    def rule(self) -> RelabelRule:
        return RelabelRule(
            self.action,
            tuple(self.source_labels),
            self.separator,
            self.regex,
            self.target_label,
            self.replacement,
            self.modulus,
        )
