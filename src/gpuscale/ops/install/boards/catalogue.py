"""All dashboards of an installation, as files."""

from dataclasses import dataclass, field

from gpuscale.ops.install.placeholders import SeriesNames, filled_in, series_names, source_text
from gpuscale.ops.install.values import Values

_FILES = (
    "gpuscale-gpus.json",
    "gpuscale-autoscaling.json",
    "gpuscale-cost.json",
    "gpuscale-servers.json",
)


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


def board_sources() -> dict[str, str]:
    """Return the dashboards with their placeholders, by the names of files."""
    return {name: source_text(__package__, name) for name in _FILES}


def board_texts(settings: BoardSettings) -> dict[str, str]:
    """Return all dashboards as Grafana's JSON, by the names of files."""
    names = settings.names
    filled = {
        "NAMESPACE_LABEL": names.namespace,
        "POD_LABEL": names.pod,
        "CONTAINER_LABEL": names.container,
        "AGENT_JOB": names.agent_job,
        "API_JOB": names.api_job,
        "GPU_HOUR_PRICE": f"{settings.gpu_hour_price:g}",
        "CURRENCY": settings.currency,
    }
    return {name: filled_in(__package__, name, filled) for name in _FILES}


def board_files(values: Values) -> dict[str, str]:
    """Return the dashboards' JSON by the names of files; nothing where they are off."""
    return board_texts(board_settings(values)) if values.spec.dashboards.enabled else {}
