"""Health paths and the server's own metrics."""

from gpuscale.base.clock import ManualClock
from gpuscale.base.exposition.write import render_text
from gpuscale.server.metricsapi.health import HealthCheck, health, single
from gpuscale.server.metricsapi.telemetry.own_metrics import (
    ServedValues,
    ServerMetrics,
    SourceLag,
    cache_family,
    with_samples,
)
from gpuscale.server.metricsapi.telemetry.request_metrics import group_label

VALUES = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ml/pods/*/gpu_util"
WELL, ILL = HealthCheck("ping"), HealthCheck("shutdown", "the server is stopping")
NONE = frozenset()


def test_a_failed_check_fails_the_path_and_is_reported() -> None:
    found = health("readyz", [WELL, ILL], NONE, verbose=False)
    assert not found.is_well
    assert found.text == (
        "[+]ping ok\n[-]shutdown failed: the server is stopping\nreadyz check failed\n"
    )


def test_an_excluded_check_does_not_count() -> None:
    found = health("readyz", [WELL, ILL], frozenset({"shutdown"}), verbose=False)
    assert (found.is_well, found.text) == (True, "ok")


def test_a_remark_does_not_fail_the_path() -> None:
    found = health("readyz", [HealthCheck("rules", remark="old")], NONE, verbose=True)
    assert (found.is_well, found.text) == (True, "[+]rules ok: old\nreadyz check passed\n")


def test_one_check_can_be_asked_for() -> None:
    checks = [WELL, ILL]
    assert single(checks, "ping").text == "ok"
    assert not single(checks, "shutdown").is_well
    assert single(checks, "none") is None


def test_requests_are_counted_by_group_and_timed() -> None:
    metrics = ServerMetrics(ManualClock(10_000))
    metrics.begins()
    metrics.ends("GET", VALUES, 200, 0.004)
    metrics.begins()
    metrics.ends("GET", VALUES, 200, 0.02)
    metrics.begins()
    metrics.ends("GET", VALUES, 404, 99.0)
    metrics.rejected("forbidden")
    metrics.answered(ServedValues("custom.metrics.k8s.io", "gpu_util", 7_500, 0.03))
    metrics.source_request("query", 0.1, failed=True)
    text = render_text(with_samples(metrics.families(), [cache_family({"token": (3, 1)})]))
    group = 'group="custom.metrics.k8s.io"'
    prefix = "gpuscale_metrics_api"
    for line in (
        f'{prefix}_requests_total{{{group},code="200"}} 2',
        f'{prefix}_requests_total{{{group},code="404"}} 1',
        # 4 ms lie at or below 5 ms, 20 ms at or below 25 ms, 99 s above all.
        f'{prefix}_request_duration_seconds_bucket{{{group},le="0.0025"}} 0',
        f'{prefix}_request_duration_seconds_bucket{{{group},le="0.005"}} 1',
        f'{prefix}_request_duration_seconds_bucket{{{group},le="0.025"}} 2',
        f'{prefix}_request_duration_seconds_bucket{{{group},le="10.0"}} 2',
        f'{prefix}_request_duration_seconds_bucket{{{group},le="+Inf"}} 3',
        f"{prefix}_request_duration_seconds_count{{{group}}} 3",
        f'{prefix}_rejected_requests_total{{reason="forbidden"}} 1',
        # 10 s - 7.5 s
        f'{prefix}_value_age_seconds{{{group},metric="gpu_util"}} 2.5',
        f'{prefix}_source_failures_total{{endpoint="query"}} 1',
        f'{prefix}_cache_lookups_total{{cache="token",result="hit"}} 3',
        f'{prefix}_cache_lookups_total{{cache="token",result="miss"}} 1',
    ):
        assert f"{line}\n" in text


def test_ages_are_kept_of_the_metrics_asked_for_last() -> None:
    metrics = ServerMetrics(ManualClock(0))
    for number in range(2_001):
        metrics.answered(ServedValues("external.metrics.k8s.io", f"m{number}", 0, 0.01))
        metrics.source_lag(("external.metrics.k8s.io", f"m{number}"), SourceLag(store_s=1.0))
    metrics.source_lag(("external.metrics.k8s.io", "never asked for"), SourceLag(store_s=1.0))
    text = render_text(metrics.families())
    assert text.count("value_age_seconds{") == 2_000
    assert text.count('hop="store"') == 2_000
    assert 'metric="m0"' not in text
    assert len(metrics.take_answered(1_500)) == 1_500
    assert len(metrics.take_answered(1_500)) == 500


def test_hops_that_are_not_known_are_left_out_of_the_total() -> None:
    metrics = ServerMetrics(ManualClock(10_000))
    for name in ("scraped", "stored", "new"):
        metrics.answered(ServedValues("custom.metrics.k8s.io", name, 10_000, 0.25))
    metrics.source_lag(("custom.metrics.k8s.io", "scraped"), SourceLag(0.5, 2.0))
    metrics.source_lag(("custom.metrics.k8s.io", "stored"), SourceLag(store_s=2.0))
    text = render_text(metrics.families())
    found = {
        line.split('metric="')[1].replace('",hop="', " ").replace('"}', "")
        for line in text.splitlines()
        if line.startswith("gpuscale_metrics_api_hop_lag_seconds{")
    }
    assert found == {
        *("scraped scrape 0.5", "scraped store 2", "scraped answer 0.25", "scraped total 2.75"),
        *("stored store 2", "stored answer 0.25", "stored total 2.25"),
        *("new answer 0.25", "new total 0.25"),
    }


def test_labels_of_requests_are_few_whatever_is_asked_for() -> None:
    assert group_label("/apis/custom.metrics.k8s.io/v1beta1/x") == "custom.metrics.k8s.io"
    assert group_label("/apis") == "apis"
    assert group_label("/readyz") == "readyz"
    for path in ("/", "/apis/evil/x", "/evil", "//"):
        assert group_label(path) == "other"
