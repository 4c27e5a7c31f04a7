"""What dashboards depend on."""

from dataclasses import dataclass, field

from gpuscale.install.series_names import SeriesNames, series_names
from gpuscale.install.values import Values


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
