"""Kin of the faults of queries that reports show: other spellings of each, and what works beside them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from query_cases import EXTERNAL, OF_CPU, TAKEN, hpa, keda, monitor, rule, server

from gpuscale.ops.lint.linting import lint

NEW = {
    *("foreign-delimiters", "namespaces-mixed", "selector-without-effect", "average-of-a-mean"),
    *("above-server-limit", "delta-of-counter", "renamed-series", "null-is-zero"),
    *("threshold-not-positive", "cooldown-without-effect"),
    *("memory-at-start", "one-number-for-all", "short-rate-window", "fallback-without-effect"),
    *("counter-without-rate", "counter-by-name"),
}


def found(*texts: str) -> set[str]:
    files = [(f"{index}.yaml", text) for index, text in enumerate(texts)]
    return {each.check.id for each in lint(files).findings} & NEW


def of_external(
    query: str, target: str = "averageValue: 5", series: str = "asked_series"
) -> set[str]:
    return found(
        rule(query, series, overrides=EXTERNAL, external=True), hpa("External", target=target)
    )


@pytest.mark.parametrize(
    "query",
    [
        "sum(q{namespace='{{.Namespace}}'})",
        "sum(rate(q{pod=~'{{ .Pods }}'}[5m])) by (pod)",
        "sum(q{{ .LabelMatchers }}) by (<<.GroupBy>>)",
        "{{.Series}}",
        "max(q{ns='{{- .Values.ns }}'})",
    ],
)
def test_templates_of_other_tools(query: str) -> None:
    assert found(rule(query)) == {"foreign-delimiters"}


@pytest.mark.parametrize(
    "query",
    [
        "avg(queue_length) by (pod)",
        "sum(rate(requests_count[5m])) by (pod)",
        "ceil(queue_length / queue_limit * 100)",
        "max_over_time(queue_length[5m])",
        "queue_length",
    ],
)
def test_queries_that_take_nothing_from_the_request(query: str) -> None:
    assert found(rule(query)) == {"namespaces-mixed"}


@pytest.mark.parametrize(
    "query",
    [
        TAKEN,
        "avg(queue_length{namespace='prod'}) by (pod)",  # of one namespace alone, as written
        "sum(queue_length{namespace='<<index .LabelValuesByName \\\"namespace\\\">>'}) by (pod)",
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) / sum(queue_limit)",
    ],
)
def test_queries_that_tell_namespaces_apart(query: str) -> None:
    assert found(rule(query)) == set()


@pytest.mark.parametrize("kind", ["Pods", "Object", "External"])
def test_a_selector_that_reaches_no_matcher(kind: str) -> None:
    is_external = kind == "External"
    overrides = (
        EXTERNAL if kind != "Pods" else "{namespace: {resource: namespace}, pod: {resource: pod}}"
    )
    fixed = rule(
        "sum(lag{ns='a'}) by (namespace, pod)", "lag", overrides=overrides, external=is_external
    )
    used = rule(
        "sum(lag{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        "lag",
        overrides=overrides,
        external=is_external,
    )
    target = "value: 5" if kind == "Object" else "averageValue: 5"
    asked = hpa(kind, selector="{group: frames}", target=target)
    assert "selector-without-effect" in found(fixed, asked)
    assert "selector-without-effect" not in found(used, asked)
    assert "selector-without-effect" not in found(fixed, hpa(kind, target=target))


@pytest.mark.parametrize(
    "query",
    [
        "avg(<<.Series>>{<<.LabelMatchers>>})",
        "quantile(0.9, <<.Series>>{<<.LabelMatchers>>})",
        "histogram_quantile(0.99, sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (le))",
        "max(wait_seconds{<<.LabelMatchers>>})",
        "ceil(avg(<<.Series>>{<<.LabelMatchers>>}) * 100)",
        "1000 * max(step_ms{<<.LabelMatchers>>})",
        "sum(<<.Series>>{<<.LabelMatchers>>}) / count(<<.Series>>{<<.LabelMatchers>>})",
        "sum(<<.Series>>{<<.LabelMatchers>>}) / count(up)",
        "sum(<<.Series>>{<<.LabelMatchers>>}) / sum(kube_deployment_status_replicas{<<.LabelMatchers>>})",
        "sum(rate(wait_ms_sum{<<.LabelMatchers>>}[5m])) / sum(rate(wait_ms_count{<<.LabelMatchers>>}[5m]))",
        "100 * (sum(busy{<<.LabelMatchers>>}) / count(busy{<<.LabelMatchers>>}))",
    ],
)
def test_what_does_not_grow_with_the_pods(query: str) -> None:
    assert of_external(query) == {"average-of-a-mean"}
    assert of_external(query, "value: 5") == set()
    of_keda = query.replace("<<.Series>>", "asked_series").replace("<<.LabelMatchers>>", "")
    assert "average-of-a-mean" in found(keda(of_keda))


@pytest.mark.parametrize(
    "query",
    [
        "sum(<<.Series>>{<<.LabelMatchers>>})",
        "max(<<.Series>>{<<.LabelMatchers>>})",  # one queue that several exporters show
        "sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m]))",
        "count(<<.Series>>{<<.LabelMatchers>>})",
        "avg(<<.Series>>{<<.LabelMatchers>>}) * count(up)",
        "sum(<<.Series>>{<<.LabelMatchers>>}) / 60",
        "sum(backlog_bytes{<<.LabelMatchers>>}) / sum(bytes_per_second{<<.LabelMatchers>>})",
        "sum(<<.Series>>{<<.LabelMatchers>>}) / count(kube_node_info)",
    ],
)
def test_what_grows_or_may_grow(query: str) -> None:
    assert of_external(query) == set()


@pytest.mark.parametrize(
    ("series", "image", "args", "is_above"),
    [
        ("vllm:num_requests_running", "vllm/vllm-openai", ["--max-num-seqs", "8"], True),
        (
            "vllm:num_requests_running",
            "vllm/vllm-openai",
            ["--max-num-seqs=32"],
            True,
        ),  # never above
        ("vllm:num_requests_running", "vllm/vllm-openai", ["--max-num-seqs", "64"], False),
        ("vllm:num_requests_running", "vllm/vllm-openai", [], False),
        ("vllm:num_requests_waiting", "vllm/vllm-openai", ["--max-num-seqs", "8"], False),
        ("sglang:num_running_reqs", "lmsysorg/sglang", ["--max-running-requests", "16"], True),
        ("llamacpp:requests_processing", "ghcr.io/ggml-org/llama.cpp", ["--parallel", "4"], True),
        ("vllm:num_requests_running", "example.com/own", ["--max-num-seqs", "8"], False),
    ],
)
def test_targets_beside_the_servers_own_limits(
    series: str, image: str, args: list[str], is_above: bool
) -> None:
    asked = rule(f"avg({series}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)", f"{series}{{pod!=''}}")
    files = (asked, server(image, *args), hpa(target="averageValue: 32"))
    assert ("above-server-limit" in found(*files)) is is_above


@pytest.mark.parametrize("function", ["delta", "idelta", "deriv"])
def test_functions_of_gauges_on_counters(function: str) -> None:
    query = f"sum({function}(nv_inference_count{{<<.LabelMatchers>>}}[5m])) by (<<.GroupBy>>)"
    assert found(rule(query)) == {"delta-of-counter"}
    gauge = query.replace("nv_inference_count", "vllm:num_requests_waiting")
    assert found(rule(gauge)) == set()


@pytest.mark.parametrize(
    ("threshold", "is_wrong"),
    [
        ("'0'", True),
        ("'-1'", True),
        ("'abc'", True),
        ("'0.0'", True),
        ("'5 '", False),
        ("'0.5'", False),
        ("'1e2'", False),
        ("'${THRESHOLD}'", False),
    ],
)
def test_thresholds(threshold: str, is_wrong: bool) -> None:
    assert ("threshold-not-positive" in found(keda(threshold=threshold))) is is_wrong


@pytest.mark.parametrize(
    ("more", "is_zero"),
    [
        ("", True),
        (", ignoreNullValues: 'true'", True),
        (", ignoreNullValues: 'false'", False),
        (", ignoreNullValues: 'False'", False),
    ],
)
def test_a_fallback_beside_empty_answers(more: str, is_zero: bool) -> None:
    fallback = "fallback: {failureThreshold: 3, replicas: 4}\n  minReplicaCount: 1"
    assert ("null-is-zero" in found(keda(spec=fallback, more=more))) is is_zero
    assert found(keda(more=more)) == set()


@pytest.mark.parametrize(
    "query",
    [
        "vector(100)",
        "sum(queue_length) or vector(0)",
        "2 * (sum(queue_length) or vector(0))",
        "max(sum(queue_length) or vector(0))",
        "clamp_max(sum(queue_length) or on() vector(0), 50)",
    ],
)
def test_queries_that_always_answer(query: str) -> None:
    fallback = "fallback: {failureThreshold: 3, replicas: 4}\n  minReplicaCount: 1"
    assert "null-is-zero" not in found(keda(query, spec=fallback))


@pytest.mark.parametrize(
    ("spec", "is_idle"),
    [
        ("cooldownPeriod: 60\n  minReplicaCount: 2", True),
        ("cooldownPeriod: 60\n  minReplicaCount: 2\n  idleReplicaCount: 0", False),
        ("cooldownPeriod: 60", False),  # minReplicaCount is 0 by default
        ("minReplicaCount: 2", False),
    ],
)
def test_cooldowns(spec: str, is_idle: bool) -> None:
    assert ("cooldown-without-effect" in found(keda(spec=spec))) is is_idle


@pytest.mark.parametrize(
    "older", ["vllm:gpu_cache_usage_perc", "inference_pool_average_queue_size"]
)
def test_older_names(older: str) -> None:
    assert found(rule(TAKEN, f"{older}{{pod!=''}}")) == {"renamed-series"}


def test_both_names_are_right() -> None:
    both = (
        "avg(vllm:kv_cache_usage_perc{<<.LabelMatchers>>} or vllm:gpu_cache_usage_perc{<<.LabelMatchers>>}) "
        "by (<<.GroupBy>>)"
    )
    assert found(rule(both)) == set()


@pytest.mark.parametrize(
    ("query", "kind", "threshold", "is_above"),
    [
        (
            "sum(vllm:num_requests_running)",
            "AverageValue",
            8,
            True,
        ),  # a share of the total is one pod's
        ("avg(vllm:num_requests_running)", "Value", 8, True),
        ("max(avg_over_time(vllm:num_requests_running[1m]))", "Value", 20, True),
        ("sum(vllm:num_requests_running) or vector(0)", "AverageValue", 8, True),
        ("sum(vllm:num_requests_running)", "Value", 8, False),  # many pods' total passes it
        ("sum(vllm:num_requests_running) / 8", "AverageValue", 8, False),  # in other numbers
        ("sum(vllm:num_requests_running)", "AverageValue", 6, False),
        ("sum(vllm:num_requests_waiting)", "AverageValue", 8, False),
    ],
)
def test_thresholds_beside_the_servers_own_limits(
    query: str, kind: str, threshold: int, is_above: bool
) -> None:
    asked = keda(query, f"'{threshold}'").replace(
        "type: prometheus", f"type: prometheus, metricType: {kind}"
    )
    served = server("vllm/vllm-openai:v0.11.0", "--max-num-seqs", "8")
    assert ("above-server-limit" in found(asked, served)) is is_above


@pytest.mark.parametrize(
    ("image", "args", "query", "is_taken"),
    [
        ("vllm/vllm-openai:v0.11.0", [], "avg(DCGM_FI_DEV_FB_USED)", True),
        ("lmsysorg/sglang", [], "max(DCGM_FI_DEV_FB_USED_PERCENT)", True),
        (
            "nvcr.io/nvidia/tritonserver:25.08-trtllm-python-py3",
            [],
            "sum(DCGM_FI_DEV_FB_USED)",
            True,
        ),
        ("example.com/own", ["vllm serve /models/q"], "sum(DCGM_FI_DEV_FB_USED)", True),
        (
            "vllm/vllm-openai",
            [],
            "sum(DCGM_FI_DEV_FB_USED) / (sum(DCGM_FI_DEV_FB_USED) + sum(DCGM_FI_DEV_FB_FREE))",
            True,
        ),
        ("nvcr.io/nvidia/tritonserver:25.08-py3", [], "sum(DCGM_FI_DEV_FB_USED)", False),
        (
            "vllm/vllm-openai",
            [],
            "sum(DCGM_FI_DEV_FB_USED) * sum(vllm:num_requests_running)",
            False,
        ),
        ("lmsysorg/sglang", ["--model", "vllm-tuned"], "sum(DCGM_FI_DEV_GPU_UTIL)", False),
    ],
)
def test_memory_as_a_trigger(image: str, args: list[str], query: str, is_taken: bool) -> None:
    assert ("memory-at-start" in found(keda(query), server(image, *args))) is is_taken


@pytest.mark.parametrize(
    ("query", "is_one"),
    [
        ("group(up) by (pod) * on() group_left() sum(lag)", True),
        ("sum(q{<<.LabelMatchers>>}) by (pod) * 0 + on() group_left() sum(lag)", True),
        ("(q{<<.LabelMatchers>>} - q{<<.LabelMatchers>>}) + on() group_left() max(lag)", True),
        ("max(group(q{<<.LabelMatchers>>}) by (pod) * scalar(sum(lag))) by (pod)", True),
        ("ceil(group(q{<<.LabelMatchers>>}) by (pod) * on() group_left() sum(lag) / 10)", True),
        ("sum(q{<<.LabelMatchers>>}) by (pod) + on() group_left() sum(lag)", False),
        ("sum(q{<<.LabelMatchers>>}) by (pod) / scalar(sum(lag))", False),
        ("q{<<.LabelMatchers>>} and on() sum(lag) > 0", False),
        ("q{<<.LabelMatchers>>} / q_limit{<<.LabelMatchers>>}", False),
    ],
)
def test_numbers_of_the_whole_on_every_pod(query: str, is_one: bool) -> None:
    assert ("one-number-for-all" in found(rule(query))) is is_one


@pytest.mark.parametrize(
    ("window", "intervals", "is_short"),
    [
        ("1m", ["60s"], True),
        ("2m", ["60s"], False),  # two samples, a minute apart
        ("1m", ["15s", "60s"], False),  # the series may be those that are scraped more often
        ("30s", ["10s"], False),
        ("30s", [], True),  # by what is usual
        ("1m", [], False),
    ],
)
def test_ranges_beside_how_often_samples_are_taken(
    window: str, intervals: list[str], is_short: bool
) -> None:
    asked = rule(f"sum(rate(q{{<<.LabelMatchers>>}}[{window}])) by (<<.GroupBy>>)")
    assert ("short-rate-window" in found(asked, *map(monitor, intervals))) is is_short


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ("vllm:prompt_tokens_total", "counter-without-rate"),
        ("tgi_request_count", "counter-without-rate"),
        ("vllm:e2e_request_latency_seconds_sum", "counter-without-rate"),
        ("sglang:num_requests_total", "counter-without-rate"),
        ("own_jobs_total", "counter-by-name"),
        ("nv_inference_pending_request_count", None),
        ("tgi_queue_size", None),
    ],
)
def test_counters_of_servers(series: str, expected: str | None) -> None:
    assert found(keda(f"sum({series})")) == ({expected} if expected else set())


def test_fallbacks_beside_triggers_that_keda_asks_nothing() -> None:
    fallback = "  fallback: {failureThreshold: 3, replicas: 4}\n"
    memory = OF_CPU.replace("type: cpu", "type: memory")
    both = OF_CPU.replace(
        "triggers: [", "triggers: [{type: cron, metadata: {desiredReplicas: '2'}}, "
    )
    assert found(OF_CPU + fallback) == found(memory + fallback) == {"fallback-without-effect"}
    assert found(both + fallback) == set()
