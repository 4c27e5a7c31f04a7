"""From the metrics page of each server, proxy and exporter to the value that an HPA gets, against arithmetic.

Each page is scraped twice, a minute apart; at first its counters had half of what they have now. So a rate is
half of the counter over 60 seconds.
"""

import re
from pathlib import Path

import pytest

from gpuscale.base.clock import ManualClock
from gpuscale.base.documents.documents import dump_documents
from gpuscale.base.errors import NotFoundError
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.ops.install.chart.signal_rules import has_rule, signal_rule
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.wire.paths import CustomTarget
from gpuscale.server.rules.config import load_rules, preset_config
from gpuscale.server.sources.embedded import EmbeddedSource
from gpuscale.signals import SIGNALS, filled_in

PAGES = Path(__file__).parents[2] / "data" / "signals"
NOW_MS = 1_700_000_000_000
POD = "chat-7d9f8b6c5d-x2f4z"
HALF_A_MINUTE = 2 * 60
"""What a counter is divided by for its rate: half of it came within 60 seconds."""


class Objects:
    """Every name that is asked for."""

    def names(self, resource, namespace, selector):
        return (POD,)


def at_first(page: str) -> str:
    """Return what a page was a minute ago."""
    counted: set[str] = set()

    def halved(line: str) -> str:
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split(" ")
            if kind in ("counter", "histogram"):
                counted.add(name)
        found = re.match(r"([\w:]+?)((?:_bucket|_sum|_count)?(?:\{.*\})?) (\S+)$", line)
        if (
            found is None
            or line.startswith("#")
            or not (
                found[1] in counted
                or any(line.startswith(f"{each}_") for each in counted)
                or any(line.startswith(f"{each}{{") for each in counted)
            )
        ):
            return line
        return f"{line.rpartition(' ')[0]} {float(found[3]) / 2:g}"

    return "\n".join(map(halved, page.splitlines())) + "\n"


def scraped(*pages: str, pods=(POD,), **labels):
    """A store with pages as Prometheus scrapes them: one page for each pod, or one of something else."""
    store = SeriesStore()
    for page, pod in zip(pages, pods, strict=True):
        target = ScrapeTarget(store, {"namespace": "ml", "pod": pod, "node": "n1", **labels})
        text = (PAGES / page).read_text()
        for t_ms, version in ((NOW_MS - 60_000, at_first(text)), (NOW_MS, text)):
            assert target.ingest(version, t_ms).problem is None
    return EmbeddedSource(store)


def rules_of(*names: str):
    rules = [signal_rule(SIGNALS[name]) for name in names]
    return load_rules(dump_documents([{"rules": rules}]), "rules.yaml")


async def served(source, config, metric, resource="pods", name=POD):
    provider = MetricsProvider(config, source, Objects(), ManualClock(NOW_MS))
    await provider.relist()
    target = CustomTarget(resource, "ml", name, metric)
    answer = await provider.custom(target, parse_selector(""), parse_selector(""))
    (value,) = answer.values
    return value.value_milli / 1000


OF_PODS = {
    "vllm-waiting": ("vllm.txt", 3 + 4),
    "vllm-running": ("vllm.txt", 20 + 12),
    "vllm-kv-cache": ("vllm.txt", (0.9 + 0.5) / 2),
    # All came between 0.5 and 1 s, so 95 % are below 0.5 + 0.95 * 0.5.
    "vllm-ttft": ("vllm.txt", 0.975),
    "vllm-tokens": ("vllm.txt", (120_000 + 60_000) / HALF_A_MINUTE),
    "sglang-waiting": ("sglang.txt", 6),
    "sglang-running": ("sglang.txt", 30),
    "sglang-kv-cache": ("sglang.txt", 0.75),
    # Half of them between 0.2 and 0.4 s: 95 % are nine tenths into that half.
    "sglang-ttft": ("sglang.txt", 0.2 + 0.9 * 0.2),
    "sglang-tokens": ("sglang.txt", (36_000 + 12_000) / HALF_A_MINUTE),
    "tgi-waiting": ("tgi.txt", 9),
    "tgi-running": ("tgi.txt", 16),
    "tgi-tokens-in-batch": ("tgi.txt", 24_000 / 32_000),
    "tgi-queue-time": ("tgi.txt", 30 / 120),
    "tgi-tokens": ("tgi.txt", 24_000 / HALF_A_MINUTE),
    "triton-waiting": ("triton.txt", 8),
    # 48 s of waiting over 2400 requests.
    "triton-queue-time": ("triton.txt", 0.02),
    "triton-rate": ("triton.txt", (1800 + 600) / HALF_A_MINUTE),
    "trtllm-waiting": ("triton.txt", 2),
    "trtllm-running": ("triton.txt", 11),
    "trtllm-kv-cache": ("triton.txt", 0.625),
    "ray-waiting": ("ray.txt", 5 + 2),
    "ray-running": ("ray.txt", 4 + 3),
    "dynamo-running": ("dynamo.txt", 14),
    "dynamo-kv-cache": ("dynamo.txt", 0.4),
    "llamacpp-waiting": ("llamacpp.txt", 2),
    "llamacpp-running": ("llamacpp.txt", 4),
    "llamacpp-tokens": ("llamacpp.txt", 6000 / HALF_A_MINUTE),
    # 90 s of waiting over 600 requests.
    "torchserve-queue-time": ("torchserve.txt", 0.15),
    "torchserve-rate": ("torchserve.txt", 600 / HALF_A_MINUTE),
}
OF_POOLS = {
    "epp-waiting": 4,
    "epp-running": 21,
    "epp-kv-cache": 0.6,
    "epp-queue": 11 + 6,
    "epp-saturation": 1.2,
}
TOTALS = {
    "dynamo-waiting": ("dynamo.txt", 18),
    "dynamo-tokens": ("dynamo.txt", 240_000 / HALF_A_MINUTE),
    # Each picker's mean times its three ready pods.
    "epp-waiting": ("epp.txt", 4 * 3),
    "epp-running": ("epp.txt", 21 * 3),
    "epp-kv-cache": ("epp.txt", 0.6 * 3),
    "epp-queue": ("epp.txt", 11 + 6),
    "epp-saturation": ("epp.txt", 1.2 * 3),
    # 900 s of requests ended within 120 s: half of that within 60.
    "istio-in-flight": ("proxies.txt", 900 / HALF_A_MINUTE),
    # The gateway's 1200 were seen at both ends, and count once.
    "istio-rate": ("proxies.txt", (1200 + 600) / HALF_A_MINUTE),
    "envoy-in-flight": ("proxies.txt", 12 + 3),
    "envoy-rate": ("proxies.txt", 2400 / HALF_A_MINUTE),
    "nginx-in-flight": ("proxies.txt", 1200 / HALF_A_MINUTE),
    "nginx-rate": ("proxies.txt", 600 / HALF_A_MINUTE),
    "traefik-in-flight": ("proxies.txt", 480 / HALF_A_MINUTE),
    "traefik-rate": ("proxies.txt", (240 + 120) / HALF_A_MINUTE),
    "rabbitmq-ready": ("queues.txt", 40),
    "rabbitmq-messages": ("queues.txt", 52),
    # A lag below 0 is none.
    "kafka-lag": ("queues.txt", 70 + 30),
    "sqs-visible": ("queues.txt", 33),
}


def test_every_signal_has_a_case() -> None:
    not_gpus = {name: each for name, each in SIGNALS.items() if not each.is_of_gpus}
    assert {*OF_PODS} == {n for n, each in not_gpus.items() if each.kind == "pods"}
    assert {*OF_POOLS} == {n for n, each in not_gpus.items() if each.kind == "object"}
    assert {*TOTALS} == {n for n, each in not_gpus.items() if each.query}


@pytest.mark.parametrize("name", OF_PODS)
async def test_the_value_of_a_pod(name: str) -> None:
    page, value = OF_PODS[name]
    found = await served(scraped(page), rules_of(name), SIGNALS[name].metric)
    assert found == pytest.approx(value, abs=0.001)


@pytest.mark.parametrize("name", OF_PODS)
async def test_the_preset_serves_it_too(name: str) -> None:
    page, value = OF_PODS[name]
    found = await served(scraped(page), preset_config(), SIGNALS[name].metric)
    assert found == pytest.approx(value, abs=0.001)


@pytest.mark.parametrize("page", ["epp.txt", "inference-pool.txt"])
@pytest.mark.parametrize("name", OF_POOLS)
async def test_the_value_of_a_pool_by_both_of_its_names(name: str, page: str) -> None:
    config, metric = rules_of(name), SIGNALS[name].metric
    source, resource = scraped(page), "inferencepools.inference.networking.k8s.io"
    if page == "inference-pool.txt" and name in ("epp-running", "epp-saturation"):
        # Not on this page, and so not known: never 0.
        with pytest.raises(NotFoundError):
            await served(source, config, metric, resource, "chat")
        return
    found = await served(source, config, metric, resource, "chat")
    assert found == pytest.approx(OF_POOLS[name], abs=0.001)


async def total(page: str, name: str, **labels) -> float | None:
    query = filled_in(SIGNALS[name].query, "chat", "ml")
    result = await scraped(page, **labels).query(query, NOW_MS)
    values = [each.value for each in result.samples]
    assert len(values) <= 1
    return values[0] if values else None


@pytest.mark.parametrize("name", TOTALS)
async def test_the_total_of_what_is_in_front_of_the_pods(name: str) -> None:
    page, value = TOTALS[name]
    assert await total(page, name) == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("rabbitmq-ready", "rabbitmq-detailed.txt"),
        ("rabbitmq-messages", "rabbitmq-detailed.txt"),
        ("sqs-visible", "cloudwatch-exporter.txt"),
        ("epp-queue", "inference-pool.txt"),
        ("epp-waiting", "inference-pool.txt"),
    ],
)
async def test_other_spellings_give_the_same(name: str, page: str) -> None:
    assert await total(page, name) == pytest.approx(TOTALS[name][1])


async def test_what_was_never_there_is_unknown_and_not_0() -> None:
    for name in TOTALS:
        assert await total("llamacpp.txt", name) is None


async def test_the_namespace_of_an_ingress_may_be_renamed_by_the_scrape() -> None:
    # Without honor_labels, `namespace` is the controller's and `exported_namespace` the Ingress'.
    found = await total("proxies.txt", "nginx-rate", namespace="ingress-nginx")
    assert found == pytest.approx(600 / HALF_A_MINUTE)


@pytest.mark.parametrize(
    ("name", "page", "value"),
    [("vllm-kv-cache", "vllm-0.9.txt", 0.25), ("dynamo-kv-cache", "dynamo-0.5.txt", 0.4)],
)
async def test_older_releases_are_served_under_the_same_name(name, page, value) -> None:
    assert await served(scraped(page), rules_of(name), SIGNALS[name].metric) == value


async def test_in_the_middle_of_an_update_old_and_new_pods_are_both_there() -> None:
    pods = (POD, "chat-5f6d7c8b9-bcdfg")
    source = scraped("vllm.txt", "vllm-0.9.txt", pods=pods)
    config = rules_of("vllm-kv-cache")
    for pod, value in zip(pods, (0.7, 0.25), strict=True):
        assert await served(source, config, "vllm_kv_cache_usage_perc", name=pod) == value


async def test_a_quantile_of_nothing_is_unknown_and_not_0() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {"namespace": "ml", "pod": POD})
    page = (PAGES / "vllm.txt").read_text()
    # No request came within the last minute.
    for t_ms in (NOW_MS - 60_000, NOW_MS):
        assert target.ingest(page, t_ms).problem is None
    metric = SIGNALS["vllm-ttft"].metric
    with pytest.raises(NotFoundError):
        await served(EmbeddedSource(store), rules_of("vllm-ttft"), metric)


def test_rules_have_no_warnings() -> None:
    names = [name for name, each in SIGNALS.items() if has_rule(each)]
    assert rules_of(*names).warnings == ()
