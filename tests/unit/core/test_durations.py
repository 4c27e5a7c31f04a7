import pytest

from gpuscale.base.golang.durations import format_duration, go_duration, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("15s", 15_000),
        ("1h30m", 5_400_000),  # 60 min + 30 min
        ("500ms", 500),
        ("0.5s", 500),
        ("2d", 172_800_000),  # 2 x 24 x 3600 s
        (7, 7_000),
        (0.25, 250),
        ("90", 90_000),
    ],
)
def test_durations_are_read_in_every_form(text, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "s", "5 minutes", "-5s", "1h 30m", "5x", True, "9" * 400 + "h"]
)
def test_other_texts_are_refused_with_an_example(text) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(0, "0s"), (5_400_000, "1h30m"), (61_500, "1m1s500ms")]
)
def test_durations_print_in_their_shortest_form(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0s"),
        (500, "500ms"),
        (1_500, "1.5s"),
        (30_000, "30s"),
        (300_000, "5m0s"),
        (5_400_000, "1h30m0s"),
        (86_400_000, "24h0m0s"),
    ],
)
def test_durations_print_as_in_go(milliseconds: int, text: str) -> None:
    assert go_duration(milliseconds) == text
