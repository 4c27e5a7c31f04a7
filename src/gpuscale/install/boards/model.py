"""What a dashboard is made of: variables, rows of panels, queries, and the settings that they depend on."""

from dataclasses import dataclass, field
from typing import Literal

from gpuscale.install.series_names import SeriesNames, series_names
from gpuscale.install.values import Values

Kind = Literal["timeseries", "stat", "gauge", "table", "state-timeline"]
WIDTH = 24
"""Columns of Grafana's grid."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query of a panel."""

    expr: str
    """With the dashboard's variables as `$name`."""
    legend: str = ""
    """Name of each series, with labels as `{{name}}`; all labels if empty."""
    axis_unit: str = ""
    """Where it has a unit of its own, on the axis to the right."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A colour from some value on."""

    value: float
    color: str


@dataclass(frozen=True, slots=True)
class Word:
    """A text shown in place of a value, in its colour."""

    value: str
    text: str
    color: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. Its place follows from the panels before it."""

    title: str
    queries: tuple[Query, ...]
    unit: str
    """Grafana's name of it, such as `percent`, `watt` or `mbytes` (MiB); of a table, of its values."""
    description: str = ""
    kind: Kind = "timeseries"
    width: int = 12
    height: int = 7
    at_least: float | None = None
    """Lower end of the axis; the data's own if None."""
    at_most: float | None = None
    thresholds: tuple[Threshold, ...] = ()
    is_stacked: bool = False
    has_steps: bool = False
    """Whether a value holds until the next, as counts do."""
    words: tuple[Word, ...] = ()

    @property
    def is_instant(self) -> bool:
        """Return whether only the latest values are shown."""
        return self.kind in ("stat", "gauge", "table")


def yes_or_no(title: str, queries: tuple[Query, ...], description: str) -> Panel:
    """Return a panel of what is 1 or 0 over time, and should be 1."""
    return Panel(
        title,
        queries,
        "short",
        description,
        kind="state-timeline",
        words=(Word("0", "no", "red"), Word("1", "yes", "green")),
    )


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class LabelVariable:
    """A choice among the values of a label."""

    name: str
    title: str
    metric: str
    """A selector, which may have variables that come before."""
    label: str
    has_all: bool = True
    """Whether several can be chosen, and all are at first. Series without the label are among all."""
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class TextVariable:
    """A number or text that the user can change."""

    name: str
    title: str
    value: str


Variable = LabelVariable | TextVariable


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    uid: str
    """Stays the same, so that links do; 40 characters at most."""
    title: str
    description: str
    variables: tuple[Variable, ...]
    """Beside the data source."""
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class BoardSettings:
    """Names of series, and what GPUs cost."""

    names: SeriesNames = field(default_factory=SeriesNames)
    gpu_hour_price: float = 2.5
    currency: str = "USD"


def board_settings(values: Values) -> BoardSettings:
    """Return what the dashboards of an installation depend on."""
    dashboards = values.spec.dashboards
    return BoardSettings(series_names(values), dashboards.gpu_hour_price, dashboards.currency)


GPU = 'Hostname=~"$node", gpu=~"$gpu"'
"""Matchers of the chosen GPUs."""
GPU_LABELS = "Hostname, gpu, UUID, modelName"
"""What identifies a GPU, whichever pod has it."""


def busy(matchers: str) -> str:
    """Return the query of each GPU's utilization in percent; of one split by MIG, of its busiest instance."""
    utilization = f"DCGM_FI_DEV_GPU_UTIL{{{matchers}}}"
    instances = f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{matchers}, GPU_I_ID!=""}}'
    return f"max by ({GPU_LABELS}) ({utilization} or 100 * {instances})"
