"""Lengths of time as Kubernetes writes them; cases by k8s.io/apimachinery pkg/util/duration."""

import pytest

from gpuscale.lab.kube_api.tables.ages import age, human_duration

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-2 * SECOND, "<invalid>"),
        (-1_999, "0s"),
        (-1, "0s"),
        (0, "0s"),
        (999, "0s"),
        (119_999, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + SECOND, "2m1s"),
        (9 * MINUTE + 59 * SECOND, "9m59s"),
        (10 * MINUTE + 59 * SECOND, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 59 * SECOND, "3h"),
        (3 * HOUR + MINUTE, "3h1m"),
        (8 * HOUR - 1, "7h59m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY + 23 * HOUR, "8d"),
        (730 * DAY - 1, "729d"),
        (730 * DAY, "2y"),
        (731 * DAY, "2y1d"),
        (8 * 365 * DAY + 300 * DAY, "8y"),
    ],
)
def test_a_length_of_time_has_two_or_three_figures(milliseconds, text) -> None:
    assert human_duration(milliseconds) == text


def test_an_age_is_counted_from_a_time_of_an_object() -> None:
    assert age("2026-01-01T00:00:00Z", 1_767_225_600_000 + 5 * MINUTE) == "5m"


@pytest.mark.parametrize("missing", [None, ""])
def test_an_object_without_a_time_has_no_age(missing) -> None:
    assert age(missing, 0) == "<unknown>"
