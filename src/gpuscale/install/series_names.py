"""What the series of an installation are called in its Prometheus: labels of pods, and scrape jobs."""

from dataclasses import dataclass

from gpuscale.install.common import METRICS_API, NODE_AGENT, part_name
from gpuscale.install.values import Values


@dataclass(frozen=True, slots=True)
class SeriesNames:
    """Labels and jobs; the defaults are those of an installation with default values."""

    namespace: str = "namespace"
    """Label of the node agents' series with the namespace of a GPU's pod."""
    pod: str = "pod"
    container: str = "container"
    agent_job: str = "gpuscale-node-agent"
    api_job: str = "gpuscale-metrics-api"

    @property
    def are_exported(self) -> bool:
        """Whether Prometheus keeps the agents' labels as `exported_pod` and `exported_namespace`."""
        return self.pod != "pod"


def series_names(values: Values) -> SeriesNames:
    """Return the names that an installation's series have."""
    jobs = {
        "agent_job": part_name(values, NODE_AGENT),
        "api_job": part_name(values, METRICS_API),
    }
    if values.spec.prometheus.honor_labels:
        return SeriesNames(**jobs)
    return SeriesNames("exported_namespace", "exported_pod", "exported_container", **jobs)
