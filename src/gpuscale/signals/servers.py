"""Signals of model servers: waiting and running requests, KV cache, time to first token, token rate.

Sources, where each name, type and label was read:
    vLLM 0.33.0: vllm/v1/metrics/loggers.py. `gpu_cache_usage_perc` until 0.10 is `kv_cache_usage_perc` now:
        hidden in 0.11 (vllm#24245), gone in 0.12 (vllm#29330).
    SGLang 0.5.23: python/sglang/srt/observability/metrics_collector.py.
    Text Generation Inference 3.3.7: router/src/server.rs, backends/v3/src/queue.rs and backend.rs.
    Triton, core of June 2026 (73aad7c): src/metrics.cc; with TensorRT-LLM the families
        nv_trt_llm_request_metrics and nv_trt_llm_kv_cache_block_metrics of its backend, as llm-d-router reads
        them (engine triton-tensorrt-llm).
    Ray Serve 2.60.0: ray/serve/_private/router.py and replica.py; Ray puts `ray_` before each name.
    Dynamo 1.6.1: dynamo/prometheus_names.py of ai-dynamo-runtime, with the prefixes of its class name_prefix.
    llama.cpp b11434: tools/server/server-task.cpp. It has no metric of the KV cache any more.
    TorchServe 0.12.0: ts/configs/metrics.yaml; mode `prometheus`.
Targets: llm-d's endpoint picker (v0.10, saturationdetector/utilization/config.go) calls a pod saturated from
    5 waiting requests and from 0.8 of the KV cache on.
"""

from gpuscale.signals.signal import Signal, SignalFamily

_QUEUE = "llm-d's endpoint picker calls a pod saturated from 5 on"
_KV = "llm-d's endpoint picker calls a pod saturated from 0.8 on; above it requests are preempted"
_MEASURE = "a place to begin: three quarters of what one pod carries within your latency"
_OBJECTIVE = "your objective; above it new pods help only where requests wait for one"
_WAITING = "requests that wait for a place in a batch"
_RUNNING = "requests in batches"
_KV_USED = "used part of the KV cache"
_TTFT = "time to the first token, 95th percentile of two minutes"
_TOKENS = "tokens generated each second"

VLLM = SignalFamily("vllm", "vLLM", "0.33.0", port=8000)
SGLANG = SignalFamily(
    "sglang", "SGLang", "0.5.23", port=30000, needs="starts with --enable-metrics"
)
TGI = SignalFamily("tgi", "Text Generation Inference", "3.3.7", port=80)
TRITON = SignalFamily("triton", "Triton", "core 73aad7c", port=8002)
TRTLLM = SignalFamily(
    "trtllm", "Triton with TensorRT-LLM", "core 73aad7c", port=8002, needs="the tensorrtllm backend"
)
RAY = SignalFamily("ray", "Ray Serve", "2.60.0", port=8080, needs="KubeRay's metrics port")
DYNAMO = SignalFamily(
    "dynamo",
    "NVIDIA Dynamo",
    "1.6.1",
    port=9090,
    needs="workers with DYN_SYSTEM_PORT=9090; queues are those of the frontend",
    names="the model",
)
LLAMA = SignalFamily("llamacpp", "llama.cpp", "b11434", port=8080, needs="starts with --metrics")
TORCHSERVE = SignalFamily(
    "torchserve", "TorchServe", "0.12.0", port=8082, needs="metrics_mode=prometheus"
)
SERVERS = (VLLM, SGLANG, TGI, TRITON, TRTLLM, RAY, DYNAMO, LLAMA, TORCHSERVE)


def _waiting(family: SignalFamily, series: str, metric: str, *, matchers: str = "") -> Signal:
    return Signal(
        metric,
        series,
        "requests",
        5,
        "sum",
        family=family,
        matchers=matchers,
        is_queue=True,
        what=_WAITING,
        why=_QUEUE,
    )


def _running(family: SignalFamily, series: str, metric: str, *, matchers: str = "") -> Signal:
    return Signal(
        metric,
        series,
        "requests",
        32,
        "sum",
        family=family,
        matchers=matchers,
        what=_RUNNING,
        why=_MEASURE,
    )


def _ttft(family: SignalFamily, series: str, metric: str) -> Signal:
    return Signal(metric, series, "s", 1, family=family, how="p95", what=_TTFT, why=_OBJECTIVE)


def _tokens(family: SignalFamily, series: str, metric: str) -> Signal:
    return Signal(
        metric,
        series,
        "tokens/s",
        1000,
        "sum",
        family=family,
        how="rate",
        what=_TOKENS,
        why=_MEASURE,
    )


SERVER_SIGNALS = {
    "vllm-waiting": _waiting(VLLM, "vllm:num_requests_waiting", "vllm_num_requests_waiting"),
    "vllm-running": _running(VLLM, "vllm:num_requests_running", "vllm_num_requests_running"),
    "vllm-kv-cache": Signal(
        "vllm_kv_cache_usage_perc",
        "vllm:kv_cache_usage_perc",
        "ratio",
        0.8,
        family=VLLM,
        older=("vllm:gpu_cache_usage_perc",),
        older_until=(0, 12),
        what=_KV_USED,
        why=_KV,
    ),
    "vllm-ttft": _ttft(
        VLLM, "vllm:time_to_first_token_seconds", "vllm_time_to_first_token_seconds_p95"
    ),
    "vllm-tokens": _tokens(
        VLLM, "vllm:generation_tokens_total", "vllm_generation_tokens_per_second"
    ),
    "sglang-waiting": _waiting(SGLANG, "sglang:num_queue_reqs", "sglang_num_queue_reqs"),
    "sglang-running": _running(SGLANG, "sglang:num_running_reqs", "sglang_num_running_reqs"),
    "sglang-kv-cache": Signal(
        "sglang_token_usage",
        "sglang:token_usage",
        "ratio",
        0.8,
        family=SGLANG,
        what=_KV_USED,
        why=_KV,
    ),
    "sglang-ttft": _ttft(
        SGLANG, "sglang:time_to_first_token_seconds", "sglang_time_to_first_token_seconds_p95"
    ),
    "sglang-tokens": _tokens(
        SGLANG, "sglang:generation_tokens_total", "sglang_generation_tokens_per_second"
    ),
    "tgi-waiting": _waiting(TGI, "tgi_queue_size", "tgi_queue_size"),
    "tgi-running": _running(TGI, "tgi_batch_current_size", "tgi_batch_current_size"),
    "tgi-tokens-in-batch": Signal(
        "tgi_batch_token_usage",
        "tgi_batch_current_max_tokens",
        "ratio",
        0.8,
        "sum",
        divisor="tgi_batch_max_total_tokens",
        family=TGI,
        what="tokens that the batch may grow to, of what fits into memory; the nearest to a KV cache",
        why="a request that doesn't fit any more waits",
    ),
    "tgi-queue-time": Signal(
        "tgi_request_queue_seconds",
        "tgi_request_queue_duration_sum",
        "s",
        0.5,
        divisor="tgi_request_queue_duration_count",
        family=TGI,
        how="mean",
        is_queue=True,
        what="mean time that requests waited",
        why="half of a second's time to the first token",
    ),
    "tgi-tokens": _tokens(
        TGI, "tgi_request_generated_tokens_sum", "tgi_generated_tokens_per_second"
    ),
    "triton-waiting": _waiting(
        TRITON, "nv_inference_pending_request_count", "nv_inference_pending_request_count"
    ),
    "triton-queue-time": Signal(
        "nv_inference_queue_seconds",
        "nv_inference_queue_duration_us",
        "s",
        0.01,
        divisor="nv_inference_request_success",
        family=TRITON,
        how="mean",
        per_unit=1_000_000,
        is_queue=True,
        what="mean time that requests waited",
        why="a tenth of a latency of 100 ms; above it requests wait for the GPU",
    ),
    "triton-rate": Signal(
        "nv_inference_requests_per_second",
        "nv_inference_request_success",
        "requests/s",
        10,
        "sum",
        family=TRITON,
        how="rate",
        what="requests answered each second",
        why=_MEASURE,
    ),
    "trtllm-waiting": _waiting(
        TRTLLM,
        "nv_trt_llm_request_metrics",
        "trtllm_requests_waiting",
        matchers='request_type="waiting"',
    ),
    "trtllm-running": _running(
        TRTLLM,
        "nv_trt_llm_request_metrics",
        "trtllm_requests_scheduled",
        matchers='request_type="scheduled"',
    ),
    "trtllm-kv-cache": Signal(
        "trtllm_kv_cache_fraction",
        "nv_trt_llm_kv_cache_block_metrics",
        "ratio",
        0.8,
        family=TRTLLM,
        matchers='kv_cache_block_type="fraction"',
        what=_KV_USED,
        why=_KV,
    ),
    "ray-waiting": _waiting(
        RAY, "ray_serve_deployment_queued_queries", "ray_serve_deployment_queued_queries"
    ),
    "ray-running": _running(
        RAY, "ray_serve_replica_processing_queries", "ray_serve_replica_processing_queries"
    ),
    "dynamo-running": _running(
        DYNAMO, "dynamo_component_inflight_requests", "dynamo_component_inflight_requests"
    ),
    "dynamo-kv-cache": Signal(
        "dynamo_component_gpu_cache_usage",
        "dynamo_component_gpu_cache_usage_percent",
        "ratio",
        0.8,
        family=DYNAMO,
        older=("dynamo_component_kvstats_gpu_cache_usage_percent",),
        what=f"{_KV_USED}; a ratio, whatever its name says",
        why=_KV,
    ),
    "dynamo-waiting": Signal(
        "dynamo_frontend_queued_requests",
        "dynamo_frontend_queued_requests",
        "requests",
        5,
        "sum",
        family=DYNAMO,
        kind="external",
        query='sum(dynamo_frontend_queued_requests{model="$name"})',
        is_queue=True,
        what="requests at the frontend that have no first token yet",
        why=_QUEUE,
    ),
    "dynamo-tokens": Signal(
        "dynamo_frontend_output_tokens_per_second",
        "dynamo_frontend_output_tokens_total",
        "tokens/s",
        1000,
        "sum",
        family=DYNAMO,
        kind="external",
        query='sum(rate(dynamo_frontend_output_tokens_total{model="$name"}[2m]))',
        what=_TOKENS,
        why=_MEASURE,
    ),
    "llamacpp-waiting": _waiting(LLAMA, "llamacpp:requests_deferred", "llamacpp_requests_deferred"),
    "llamacpp-running": Signal(
        "llamacpp_requests_processing",
        "llamacpp:requests_processing",
        "requests",
        3,
        "sum",
        family=LLAMA,
        what="slots in use",
        why="three quarters of four slots, which --parallel sets",
    ),
    "llamacpp-tokens": _tokens(
        LLAMA, "llamacpp:tokens_predicted_total", "llamacpp_tokens_predicted_per_second"
    ),
    "torchserve-queue-time": Signal(
        "ts_queue_seconds",
        "ts_queue_latency_microseconds",
        "s",
        0.1,
        divisor="ts_inference_requests_total",
        family=TORCHSERVE,
        how="mean",
        per_unit=1_000_000,
        is_queue=True,
        what="mean time that requests waited; TorchServe has no length of its queue",
        why="a tenth of a second's latency",
    ),
    "torchserve-rate": Signal(
        "ts_inference_requests_per_second",
        "ts_inference_requests_total",
        "requests/s",
        10,
        "sum",
        family=TORCHSERVE,
        how="rate",
        what="requests each second",
        why=_MEASURE,
    ),
}
