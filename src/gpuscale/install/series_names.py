"""What the series of an installation are called in its Prometheus: labels of pods, and scrape jobs."""

from dataclasses import dataclass

from gpuscale.install.common import METRICS_API, NODE_AGENT, part_name
from gpuscale.install.values import Values

GPU_RESOURCES = 'resource=~"nvidia_com_(gpu|mig_).*|amd_com_gpu"'
"""Matcher of GPUs among the resources of kube-state-metrics, which has `_` for all but letters and digits."""
GPU_METRICS = 'metric_name=~"(?i).*gpu.*|dcgm_.*"'
"""Matcher of the autoscalers of kube-state-metrics that look at a GPU."""

API_SERVICES = 'name=~"v1beta[12].(custom|external).metrics.k8s.io"'
"""Matcher of the metrics APIs among the API server's APIServices."""


@dataclass(frozen=True, slots=True)
class SeriesNames:
    """Labels and jobs; the defaults are those of an installation with default values."""

    namespace: str = "namespace"
    """Label of the node agents' series with the namespace of a GPU's pod."""
    pod: str = "pod"
    container: str = "container"
    agent_job: str = "gpuscale-node-agent"
    api_job: str = "gpuscale-metrics-api"

    def as_pods(self, expression: str) -> str:
        """Return an expression's largest value of each pod, labelled `namespace` and `pod` in any case.

        Args:
            expression: a vector; its series without a pod are left out.
        """
        found = f"max by ({self.namespace}, {self.pod}) ({expression})"
        for label, own in (("namespace", self.namespace), ("pod", self.pod)):
            if own != label:
                found = f'label_replace({found}, "{label}", "$1", "{own}", "(.+)")'
        renamed = (self.namespace, self.pod) != ("namespace", "pod")
        return f"max by (namespace, pod) ({found})" if renamed else found


def series_names(values: Values) -> SeriesNames:
    """Return the names that an installation's series have."""
    jobs = {
        "agent_job": part_name(values, NODE_AGENT),
        "api_job": part_name(values, METRICS_API),
    }
    if values.spec.prometheus.honor_labels:
        return SeriesNames(**jobs)
    return SeriesNames("exported_namespace", "exported_pod", "exported_container", **jobs)
