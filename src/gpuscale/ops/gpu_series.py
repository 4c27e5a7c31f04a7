"""PromQL for GPUs as kube-state-metrics counts them, and as exporters tie them to pods.

Source: kube-state-metrics v2.13 docs/metrics (workload/pod-metrics.md, cluster/node-metrics.md);
    dcgm-exporter's labels, with Prometheus' honor_labels on (`pod`) and off (`exported_pod`).
"""

import re

from gpuscale.base.objects.gpu_resources import WHOLE_GPUS

WHOLE_GPU_RESOURCES = (
    f'resource=~"{"|".join(re.sub("[^a-z0-9]", "_", each) for each in WHOLE_GPUS)}"'
)
"""Matcher of whole GPUs, as simulated nodes offer them."""
GPU_RESOURCES = (
    'resource=~"nvidia_com_gpu|nvidia_com_gpu_shared|nvidia_com_mig_.+|amd_com_gpu|aliyun_com_gpu"'
)
"""Matcher of whole GPUs, turns on them and partitions."""


def of_pods(series: str, matchers: str = "", form: str = "{}") -> str:
    """Return the query for a series of GPUs that pods have, with the pods' own `namespace` and `pod`.

    Args:
        series: its name.
        matchers: more of them, each with a comma behind it.
        form: what is made of a selector, such as `max_over_time({}[1h])`.
    """
    named = form.format(f'{series}{{{matchers}exported_pod!=""}}')
    for label in ("pod", "namespace"):
        named = f'label_replace({named}, "{label}", "$1", "exported_{label}", "(.+)")'
    own = form.format(f'{series}{{{matchers}exported_pod="",pod!=""}}')
    return f"{named} or {own}"
