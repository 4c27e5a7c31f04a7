"""Text files of the package whose placeholders are filled in: upper-case words such as `AGENT_JOB`.

Many of them are what Prometheus calls the series of an installation: labels and scrape jobs.

The chart has the same files in `charts/gpuscale/files`, and fills them in with Helm's `replace`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from gpuscale.ops.install.common import METRICS_API, NODE_AGENT, SCALER, part_name
from gpuscale.ops.install.values import Values


def filled_in(package: str, file: str, values: Mapping[str, str]) -> str:
    """Return the text of a package's file with a value in place of each placeholder.

    Args:
        package: its dotted name.
        file: name of the file.
        values: by placeholder; they must not need quotes where they go.
    """
    names = "|".join(map(re.escape, values))
    return re.sub(names, lambda found: values[found[0]], source_text(package, file))


@lru_cache
def source_text(package: str, file: str) -> str:
    """Return the text of a package's file with its placeholders."""
    return (files(package) / file).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class SeriesNames:
    """Labels and jobs; the defaults are those of an installation with default values."""

    namespace: str = "namespace"
    """Label of the node agents' series with the namespace of a GPU's pod."""
    pod: str = "pod"
    container: str = "container"
    agent_job: str = "gpuscale-node-agent"
    api_job: str = "gpuscale-metrics-api"
    scaler_job: str = "gpuscale-scaler"

    @property
    def are_exported(self) -> bool:
        """Whether Prometheus keeps the agents' labels as `exported_pod` and `exported_namespace`."""
        return self.pod != "pod"


def series_names(values: Values) -> SeriesNames:
    """Return the names that an installation's series have."""
    jobs = {
        "agent_job": part_name(values, NODE_AGENT),
        "api_job": part_name(values, METRICS_API),
        "scaler_job": part_name(values, SCALER),
    }
    if values.spec.prometheus.honor_labels:
        return SeriesNames(**jobs)
    return SeriesNames("exported_namespace", "exported_pod", "exported_container", **jobs)
