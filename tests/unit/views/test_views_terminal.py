import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gpuscale.base.pages.words import clock_text, label_text, number_text, seconds_text
from gpuscale.lab.views.summary import summary_totals
from gpuscale.lab.views.terminal import (
    event_line,
    event_lines,
    state_text,
    summary_tables,
    summary_text,
)

RESCALE = {
    "t": 45.0,
    "kind": "SuccessfulRescale",
    "object": "HorizontalPodAutoscaler/gpu-hpa",
    "from": 1,
    "to": 2,
    "reason": "New size: 2; reason: pods metric DCGM_CUSTOM_PROCESS_SM_UTIL above target",
}
SMALL = {
    "summary": {
        "duration": 1800,
        "hpas": {
            "gpu-hpa": {"maxReplicas": 2, "finalReplicas": 1},
            "b": {"maxReplicas": 12, "meanLag": 3.25},
        },
        "files": {"total": 20},
        "gpuHours": 0.9,
        "meanLag": None,
    },
    "events": [RESCALE, {"t": 60, "kind": "Ready", "object": "Pod/a", "reason": ""}],
}


def printed(renderable, *, width=100, terminal=False):
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=terminal, legacy_windows=False).print(renderable)
    return file.getvalue()


def test_event_is_one_line_in_the_words_of_kubernetes() -> None:
    assert event_line(RESCALE) == (
        "00:00:45  SuccessfulRescale  HorizontalPodAutoscaler/gpu-hpa  "
        "New size: 2; reason: pods metric DCGM_CUSTOM_PROCESS_SM_UTIL above target"
    )


def test_event_without_a_reason_says_what_changed() -> None:
    event = {
        "t": 3600,
        "kind": "LoadChanged",
        "object": "Deployment/bert",
        "from": 0,
        "to": 4.6,
        "reason": None,
    }
    assert (
        event_line(event)
        == "01:00:00  LoadChanged        Deployment/bert                  0 -> 4.6"
    )


@given(
    st.dictionaries(
        st.sampled_from(["t", "kind", "object", "from", "to", "reason"]),
        st.none() | st.integers(0, 10**9) | st.floats(0, 1e9) | st.text(max_size=20),
    )
)
def test_event_of_any_content_stays_one_line_that_steers_no_terminal(event) -> None:
    line = event_line(event)
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in line)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "00:00:00"), (59.99, "00:00:59"), (3661, "01:01:01"), (360_000, "100:00:00")],
)
def test_clock_counts_hours_on(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (4.6, "4.6"),
        (22.95, "22.9"),
        (0.125, "0.12"),
        (12144, "12144"),
        ("23/20", "23/20"),
    ],
)
def test_numbers_read_as_people_write_them(value, text: str) -> None:
    # 22.95 and 0.125 are binary fractions at or just below the tie: Python rounds them down.
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("maxReplicas", "Max replicas"),
        ("gpuHours", "GPU hours"),
        ("hpas", "HPAs"),
        ("cost", "Cost"),
    ],
)
def test_keys_become_words(key: str, text: str) -> None:
    assert label_text(key) == text


def test_plain_summary_aligns_its_columns() -> None:
    assert summary_text(SMALL) == (
        "00:00:45  SuccessfulRescale  HorizontalPodAutoscaler/gpu-hpa  "
        "New size: 2; reason: pods metric DCGM_CUSTOM_PROCESS_SM_UTIL above target\n"
        "00:01:00  Ready              Pod/a\n"
        "\n"
        "Duration     00:30:00\n"
        "Files total        20\n"
        "GPU hours       0.9 h\n"
        "Mean lag            -\n"
        "\n"
        "HPAs     Max replicas  Final replicas  Mean lag\n"
        "gpu-hpa             2               1         -\n"
        "b                  12               -    3.25 s"
    )


TIMES = {"count": 2, "ready": 1, "loadRises": 1, "meanLoadToDecisionTime": 15.0}
SPREAD = {
    "answeredRises": 20,
    "loadToReadyTimeP50": 45.0,
    "loadToReadyTimeP95": 180.0,
    "loadToReadyTimeMax": None,
}


@pytest.mark.parametrize(
    ("summary", "rows"),
    [
        ({"cost": 3.4089, "currency": "CNY"}, [("Cost", "3.41 CNY")]),
        ({"cost": 0.0, "currency": "USD"}, [("Cost", "0.00 USD")]),
        ({"cost": None, "currency": "USD"}, [("Cost", "no price given")]),
        (
            {"cost": None, "nodePools": {"a": {}, "b": {}}, "poolsWithoutPrice": ["b"]},
            [("Cost", "no price given for b")],
        ),
        ({"submittedJobs": 0, "completedJobs": 0}, []),
        ({"submittedJobs": 20, "completedJobs": 3}, [("Completed jobs", "3 of 20")]),
        (
            {"hpas": {"h": {}}, "scaleOuts": {**TIMES, "meanLoadToReadyTime": 165.0}},
            [
                ("Load rise to ready pods", "2 min 45 s"),
                ("Load rise to decision", "15 s"),
                ("Decision to ready pods", "not ready"),
            ],
        ),
        (
            {"hpas": {"h": {}}, "scaleOuts": {"count": 2, "loadRises": 0}},
            [
                ("Load rise to ready pods", "no step in this load"),
                ("Load rise to decision", "no step in this load"),
                ("Decision to ready pods", "not ready"),
            ],
        ),
        (
            {"hpas": {"h": {}}, "scaleOuts": {"count": 0, "loadRises": 3}},
            [
                ("Load rise to ready pods", "no scale-out"),
                ("Load rise to decision", "no scale-out"),
                ("Decision to ready pods", "no scale-out"),
            ],
        ),
        (
            {"hpas": {"h": {}}, "scaleOuts": {**TIMES, **SPREAD}},
            [
                ("Load rise to ready pods", "p50 45 s, p95 3 min, longest not ready"),
                ("Load rise to decision", "15 s"),
                ("Decision to ready pods", "not ready"),
            ],
        ),
        ({"hpas": {}, "scaleOuts": {"count": 0, "loadRises": 0}}, []),
    ],
)
def test_what_is_absent_from_a_summary_is_said_in_words(summary, rows) -> None:
    shown = summary_totals({"summary": summary})
    assert [row for row in shown if not row[0].startswith("Node")] == rows


def test_summary_says_how_many_events_it_leaves_out() -> None:
    assert "\n... and 1 more; -o json prints every event\n" in summary_text(SMALL, max_events=1)
    assert "... and 1 more;" in printed(summary_tables(SMALL, 100, max_events=1))


def test_summary_of_an_empty_run_is_empty() -> None:
    assert summary_text({}) == ""
    assert printed(summary_tables({}, 100)).strip() == ""


def test_summary_has_colours_on_a_terminal_only(finished) -> None:
    tables = summary_tables(finished.document(), 100)
    assert "\x1b[" in printed(tables, terminal=True)
    assert "\x1b[" not in printed(tables)
    assert "\x1b[" not in summary_text(finished.document())


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_summary_fits_the_width_and_cuts_no_word_of_a_reason(finished, width: int) -> None:
    lines = printed(summary_tables(finished.document(), width), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert "DCGM_CUSTOM_PROCESS_SM_UTIL" in "".join(line.strip() for line in lines)


def test_markup_in_names_is_text_not_style() -> None:
    event = {**RESCALE, "object": "Pod/[bold]x[/bold]"}
    assert "Pod/[bold]x[/bold]" in printed(summary_tables({"events": [event]}, 100))


def test_a_narrow_terminal_has_events_without_columns() -> None:
    assert event_line(RESCALE, 79).startswith(
        "00:00:45  SuccessfulRescale  HorizontalPodAutoscaler/gpu-hpa  New size: 2; "
    )
    event = {"t": 60, "kind": "Ready", "object": "Pod/a", "reason": "up"}
    assert event_line(event, 79) == "00:01:00  Ready  Pod/a  up"
    assert event_line(event, 80) == event_line(event) != event_line(event, 79)


def test_state_shows_the_loop_as_it_stands(run) -> None:
    run.advance(9)  # 00:02:15: the load came at 00:02:00 and the HPA asked for a second pod
    text = str(state_text(run.state(), 120))
    lines = [line.split("  ") for line in text.splitlines()]
    heads = ["Workload", "Load/s", "HPA sees", "Ready", "Wanted", "Pending", "Waiting"]
    assert [cell.strip() for cell in lines[0] if cell.strip()] == heads
    value = run.state()["hpas"][0]["targets"]
    row = [cell.strip() for cell in lines[1] if cell.strip()]
    assert row == ["bert-intent-detection", "4.6", value, "1", "2", "1", "0"]
    assert "00:02:15 at 10x   nodes 1 of 2 ready" in text


def test_state_without_an_hpa_or_readings_shows_dashes() -> None:
    state = {
        "workloads": [{"name": "train", "rate": None, "ready": 0, "pending": 2, "queue": 4}],
        "nodes": [{"name": "n", "ready": True, "gpus": [{"util": None}]}],
    }
    text = str(state_text(state, 80))
    assert text.splitlines()[1].split() == ["train", "-", "-", "0", "-", "2", "4"]
    assert "GPUs no data" in text


JOBS = {
    "t": 511,
    "jobs": {
        "workloads": [
            {
                "name": "samples-tf-mnist-demo",
                "planned": 20,
                "submitted": 20,
                "pending": 12,
                "running": 1,
                "succeeded": 7,
            }
        ]
    },
}


def test_state_shows_jobs_that_wait_run_and_are_done() -> None:
    assert str(state_text(JOBS, 80)).splitlines() == [
        "Job                    Pending  Running  Succeeded  Planned",
        "samples-tf-mnist-demo       12        1          7       20",
        "00:08:31   nodes 0 of 0 ready   GPUs none",
    ]


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (80, "Job Pending Running Succeeded Planned"),
        (58, "Job Pending Running Succeeded"),
        (40, "Job Pending Running Succeeded"),
        (30, "Job Running Succeeded"),
        (20, "Job Succeeded"),
    ],
)
def test_a_narrow_terminal_loses_columns_not_letters(width: int, heads: str) -> None:
    lines = str(state_text(JOBS, width)).splitlines()
    assert lines[0].split() == heads.split()
    assert max(map(len, lines)) <= width
    assert lines[1].startswith("sam")
    assert lines[1].split()[0].endswith("mo")


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_state_never_wraps(run, width: int) -> None:
    run.advance(9)
    assert max(map(len, str(state_text(run.state(), width)).splitlines())) <= width


def test_many_gpus_are_counted_where_they_have_no_room() -> None:
    state = {"nodes": [{"ready": True, "gpus": [{"util": 100}] * 16}]}
    assert "GPUs 100%, 100%, 100%, 100%, 100%, 100%, 100%, 100% and 8 more" in str(
        state_text(state, 120)
    )
    assert str(state_text(state, 27)).splitlines()[-1] == "GPUs 100%, 100% and 14 more"
    assert str(state_text(state, 10)).splitlines()[-1] == "GPUs 16"


def test_a_table_that_is_too_wide_lists_its_values_below_each_name() -> None:
    assert printed(summary_tables(SMALL, 40), width=40).rstrip().splitlines()[-9:] == [
        "HPAs",
        "gpu-hpa",
        "  Max replicas    2",
        "  Final replicas  1",
        "  Mean lag        -",
        "b",
        "  Max replicas        12",
        "  Final replicas       -",
        "  Mean lag        3.25 s",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (22.5, "22.5 s"),
        (119, "119 s"),
        (120, "2 min"),
        (165.4, "2 min 45 s"),
        (3600, "1 h"),
        (3930, "1 h 6 min"),
    ],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    # 3930 s are 65.5 minutes; Python rounds halves to the even neighbour, 66.
    assert seconds_text(seconds) == text


LONG = {
    "t": 90.0,
    "kind": "SuccessfulRescale",
    "object": "HorizontalPodAutoscaler/gpu-hpa",
    "from": 1,
    "to": 2,
    "reason": "New size: 2; reason: pods metric DCGM_CUSTOM_PROCESS_SM_UTIL above target",
}


@pytest.mark.parametrize("width", [45, 60, 79, 80, 100, 132])
def test_an_event_that_is_too_long_for_a_terminal_goes_on_below_its_kind(width: int) -> None:
    first, *rest = event_lines(LONG, width)
    assert first.startswith("00:01:30  SuccessfulRescale")
    assert rest
    assert all(line.startswith(" " * 10) and line[10] != " " for line in rest)
    assert all(len(line) <= width for line in (first, *rest))
    words = " ".join([first, *(line.strip() for line in rest)]).split()
    assert words == event_line(LONG).split()


def test_an_event_is_one_line_in_a_file_and_where_it_fits() -> None:
    assert event_lines(LONG, None) == event_lines(LONG, 150) == [event_line(LONG)]
