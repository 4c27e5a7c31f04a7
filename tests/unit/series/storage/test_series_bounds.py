import pytest

from gpuscale.series.promql.evaluate import instant
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.storage.bounds import stored_bound
from gpuscale.series.storage.store import SeriesStore

TEXT = """\
# TYPE wait histogram
wait_bucket{le="1"} 5
wait_bucket{ le="5e1" } 6
wait_bucket{le="+Inf"} 9
# HELP TYPE x histogram
# TYPE rpc summary
rpc{quantile="1"} 3
rpc{le="1"} 4
# TYPE other gauge
other{le="1"} 7
# TYPE late histogram
late_bucket{le="0"} 1 1700000000000
"""


# What Prometheus 3.16 makes of them: as Go's strconv.FormatFloat(value, 'g', -1, 64), with ".0" added
# where there is no point or exponent.
@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1", "1.0"),
        ("0", "0.0"),
        ("-0", "0.0"),
        ("-1", "-1.0"),
        ("1.0", "1.0"),
        ("0.005", "0.005"),
        ("00.5000", "0.5"),
        ("100", "100.0"),
        ("1e2", "100.0"),
        ("100000", "100000.0"),
        ("1000000", "1e+06"),
        ("0.00001", "1e-05"),
        ("123456789", "1.23456789e+08"),
        ("+Inf", "+Inf"),
        ("inf", "+Inf"),
        ("nan", "NaN"),
        ("", ""),
        ("much", "much"),
        ("1_0", "10.0"),
        ("1__0", "1__0"),
        ("0x1p-2", "0.25"),
        ("0x_1p0", "1.0"),
        ("0x1", "0x1"),
        ("+nan", "+nan"),
        ("9" * 400, "9" * 400),
    ],
)
def test_bounds_are_stored_as_prometheus_3_stores_them(written: str, stored: str) -> None:
    assert stored_bound(written) == stored


def test_bounds_of_histograms_and_summaries_are_found_in_the_stored_form() -> None:
    store = SeriesStore()
    target = ScrapeTarget(store, {"job": "a"})
    for t_ms in (1_700_000_000_000, 1_700_000_015_000):
        # The second time, the lines are known.
        assert target.ingest(TEXT, t_ms).problem is None
        for query, value in {
            'wait_bucket{le="1.0"}': 5,
            'wait_bucket{le="50.0"}': 6,
            'wait_bucket{le="+Inf"}': 9,
            'rpc{quantile="1.0"}': 3,
            'rpc{le="1"}': 4,
            'other{le="1"}': 7,
            'late_bucket{le="0.0"}': 1,
        }.items():
            assert [each.value for each in instant(store, query, t_ms).samples] == [value], query
        assert instant(store, 'wait_bucket{le="1"}', t_ms).samples == ()


def test_lines_of_one_bound_in_two_spellings_are_one_series() -> None:
    store = SeriesStore()
    text = '# TYPE h histogram\nh_bucket{le="1"} 5\nh_bucket{le="1.0"} 6\n'
    ScrapeTarget(store, {}).ingest(text, 1_000)
    # The first one wins, as of any two lines of one series.
    assert [each.value for each in instant(store, "h_bucket", 1_000).samples] == [5]
