"""Signals of the gateway in front of model servers: llm-d's endpoint picker, by both of its names.

The object is the InferencePool. The endpoint picker names it in a label, and runs in its namespace, which the
scrape adds.

Sources, where each name and label was read:
    llm-d-router v0.10 (ebab687) pkg/epp/metrics/llm_d_router_metrics.go; metrics.go for `inference_pool_*`
        and `inference_extension_*`, the names of the Gateway API inference extension, which it serves too.
        `llm_d_router_epp_*` was on its main branch in May and June 2026, and in no release.
"""

from gpuscale.signals.signal import Described, Signal, SignalFamily

INFERENCE_POOL = Described("inference.networking.k8s.io/v1", "InferencePool", "inferencepool")
EPP = SignalFamily(
    "epp",
    "llm-d's endpoint picker",
    "v0.10",
    needs="Prometheus scrapes the endpoint picker, port 9090",
    names="the InferencePool",
)
_PER_POD = "it is a mean over the pool's pods"


def _of_pool(
    ending: str, unit: str, target: float, what: str, why: str, *, is_queue: bool = False
) -> Signal:
    """Return a signal that the picker gives as a mean over the pods of its pool."""
    current, before = f"llm_d_epp_average_{ending}", f"inference_pool_average_{ending}"
    return Signal(
        current,
        current,
        unit,
        target,
        family=EPP,
        kind="object",
        older=(before,),
        label="name",
        described=INFERENCE_POOL,
        query=f'max({current}{{name="$name"}}) * max(llm_d_epp_ready_endpoints{{name="$name"}})'
        f' or max({before}{{name="$name"}}) * max(inference_pool_ready_pods{{name="$name"}})',
        is_queue=is_queue,
        what=what,
        why=why,
    )


GATEWAY_SIGNALS = {
    "epp-waiting": _of_pool(
        "queue_size",
        "requests",
        5,
        f"requests that wait in the model servers; {_PER_POD}",
        "the picker calls a pod saturated from 5 on",
        is_queue=True,
    ),
    "epp-running": _of_pool(
        "running_requests",
        "requests",
        32,
        f"requests in batches; {_PER_POD}",
        "a place to begin: three quarters of what one pod carries within your latency",
    ),
    "epp-kv-cache": _of_pool(
        "kv_cache_utilization",
        "ratio",
        0.8,
        f"used part of the KV cache; {_PER_POD}",
        "the picker calls a pod saturated from 0.8 on",
    ),
    "epp-queue": Signal(
        "llm_d_epp_flow_control_queue_size",
        "llm_d_epp_flow_control_queue_size",
        "requests",
        5,
        "sum",
        family=EPP,
        kind="object",
        older=("inference_extension_flow_control_queue_size",),
        label="inference_pool",
        described=INFERENCE_POOL,
        is_total=True,
        query='sum(llm_d_epp_flow_control_queue_size{inference_pool="$name"})'
        ' or sum(inference_extension_flow_control_queue_size{inference_pool="$name"})',
        is_there_at_zero=True,
        is_queue=True,
        what="requests that the picker holds back because the pool is saturated; there at 0 pods too",
        why="what waits before a pool is as many requests for each pod as may wait in one",
    ),
    "epp-saturation": Signal(
        "llm_d_epp_flow_control_pool_saturation",
        "llm_d_epp_flow_control_pool_saturation",
        "saturation",
        0.7,
        "max",
        family=EPP,
        kind="object",
        older=("inference_extension_flow_control_pool_saturation",),
        label="inference_pool",
        described=INFERENCE_POOL,
        query='max(llm_d_epp_flow_control_pool_saturation{inference_pool="$name"})'
        ' * max(llm_d_epp_ready_endpoints{name="$name"})'
        ' or max(inference_extension_flow_control_pool_saturation{inference_pool="$name"})'
        ' * max(inference_pool_ready_pods{name="$name"})',
        what="how near the pool is to where the picker holds requests back, at 1; more than 1 beyond it",
        why="scales before requests are held back; an empty pool is 1, and so is one whose metrics are old",
    ),
}
