import pytest

from gpuscale.series.promapi.body import ApiError
from gpuscale.series.promapi.parameters import Parameters, parse_time_ms


# 2015-07-01T20:10:51.781Z is 1435781451.781 in the documentation of the API.
@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1435781451.781", 1435781451781),
        ("1435781451", 1435781451000),
        ("1.4357814517e9", 1435781451700),
        ("-1.5", -1500),
        ("2015-07-01T20:10:51.781Z", 1435781451781),
        ("2015-07-01T20:10:51.781999999Z", 1435781451781),
        ("2015-07-01T22:10:51+02:00", 1435781451000),
        ("2015-07-01t20:10:51z", 1435781451000),
    ],
)
def test_times_are_seconds_or_rfc_3339(text: str, milliseconds: int) -> None:
    assert parse_time_ms(text, "time") == milliseconds


@pytest.mark.parametrize(
    "text", ["", "now", "NaN", "Inf", "1e30", "1_0", "2015-07-01", "2015-13-01T00:00:00Z", "٣"]
)
def test_other_times_are_refused_in_prometheus_words(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_time_ms(text, "start")
    assert str(caught.value) == (
        f'invalid parameter "start": cannot parse "{text}" to a valid timestamp'
    )
    assert (caught.value.status, caught.value.error_type) == (400, "bad_data")


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("15", 15_000), ("0.5", 500), ("1m30s", 90_000), ("-1", -1000)]
)
def test_steps_are_seconds_or_durations(text: str, milliseconds: int) -> None:
    assert Parameters([("step", text)]).step_ms() == milliseconds


@pytest.mark.parametrize("text", ["", "soon", "1.5m", "NaN", "5 m"])
def test_other_steps_are_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        Parameters([("step", text)]).step_ms()
    assert (
        str(caught.value) == f'invalid parameter "step": cannot parse "{text}" to a valid duration'
    )


def test_the_first_of_a_repeated_field_counts_and_all_can_be_had() -> None:
    parameters = Parameters([("match[]", "a"), ("match[]", "b"), ("query", "1"), ("query", "2")])
    assert parameters.text("query") == "1"
    assert parameters.all("match[]") == ["a", "b"]
    assert len(parameters.selectors()) == 2


@pytest.mark.parametrize(("text", "limit"), [("", None), ("0", None), ("7", 7)])
def test_a_limit_of_zero_is_none(text: str, limit: int | None) -> None:
    assert Parameters([("limit", text)]).limit() == limit


def test_a_bad_limit_is_refused() -> None:
    with pytest.raises(ApiError, match='invalid parameter "limit": cannot parse "-1" to a limit'):
        Parameters([("limit", "-1")]).limit()
