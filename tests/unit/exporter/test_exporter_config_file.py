# mypy: disable-error-code="arg-type"
"""dcgm-exporter's YAML configuration: what is taken, what wins over it, what is refused, what is logged."""

import pytest

from gpuscale.agent.exporter.config_file import MAX_BYTES
from gpuscale.agent.exporter.process import ExporterService
from gpuscale.agent.exporter.settings import read_settings
from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import ConfigError, NotFoundError

LISTED = """
version: 1
metrics:
  fields:
    - {name: DCGM_FI_DEV_GPU_UTIL, prometheusType: gauge, help: "Busy, in %."}
    - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: 'Warm "inside".'}
collection:
  interval: 2s
"""


@pytest.fixture
def read(tmp_path):
    def make(text, environment=None, **given):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        named = {name.replace("_", "-"): [value] for name, value in given.items()}
        return read_settings({"config-file": [str(path)], **named}, environment or {}, "host-1")

    return make


def counters_of(settings):
    service = ExporterService(settings, ManualClock())
    return [(each.field, each.help) for each in service._counters.counters]


def test_metrics_and_interval_are_taken(read) -> None:
    settings = read(LISTED, gpu="simulated")
    assert settings.interval_ms == 2_000
    assert counters_of(settings) == [
        ("DCGM_FI_DEV_GPU_UTIL", "Busy, in %."),
        ("DCGM_FI_DEV_GPU_TEMP", 'Warm "inside".'),
    ]
    assert settings.notes == ()


def test_a_counters_file_may_be_named(read, tmp_path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("DCGM_FI_DEV_POWER_USAGE, gauge, Power.\n")
    settings = read(
        f"version: 1\nmetrics: {{file: {rows}}}\ncollection: {{interval: 500}}\n", gpu="simulated"
    )
    assert settings.interval_ms == 500
    assert counters_of(settings) == [("DCGM_FI_DEV_POWER_USAGE", "Power.")]


def test_flags_and_variables_win(read, tmp_path) -> None:
    assert read(LISTED, collect_interval="1s").interval_ms == 1_000
    assert read(LISTED, {"DCGM_EXPORTER_INTERVAL": "3000"}).interval_ms == 3_000
    rows = tmp_path / "rows.csv"
    rows.write_text("DCGM_FI_DEV_POWER_USAGE, gauge, Power.\n")
    named = read(LISTED, gpu="simulated", collectors=str(rows))
    assert counters_of(named) == [("DCGM_FI_DEV_POWER_USAGE", "Power.")]
    assert read(LISTED, configmap_data="gpu:rows").counters_text is None


def test_the_log_says_what_changes_nothing(read) -> None:
    groups = "version: 1\ncollection: {watchGroups: [{name: a, interval: 1s, fields: []}]}\n"
    (note,) = read(groups).notes
    assert "watch groups" in note
    (note,) = read("version: 2\ncollections: [{interval: 1s}]\n").notes
    assert "--collect-interval" in note


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("metrics: {}\n", "version"),
        ("version: 3\n", "1 or 2"),
        ("version: 1\nmetric: {}\n", "metrics"),
        ("version: 1\ncollections: []\n", "collection"),
        ("version: 1\nmetrics: {file: a.csv, fields: []}\n", "either"),
        ("version: 1\nmetrics: {fields: [{name: X, help: y}]}\n", "prometheusType"),
        ("version: 1\ncollection: {interval: soon}\n", "soon"),
        (
            "version: 1\ncollection:\n  interval: 5\n",
            "yaml:3: collection.interval: found 5, expected 100",
        ),
        ("version: 1\ncollection: {interval: 2h}\n", "found 2h, expected 100 to 3600000 milli"),
        ("version: 1\nversion: 1\n", "version"),
        ("version: [\n", "config.yaml"),
        ("", "documents"),
        (f"#{'x' * MAX_BYTES}\n", "KiB"),
    ],
)
def test_what_is_wrong_is_said(read, text, word) -> None:
    with pytest.raises(ConfigError, match=word):
        read(text)


def test_a_wrong_row_is_named_by_its_line(read) -> None:
    listed = """version: 1
metrics:
  # The ones that we use.
  fields:
    - name: DCGM_FI_DEV_GPU_UTIL
      prometheusType: gauge
      help: Busy.

    - name: DCGM_FI_DEV_GPU_TEMP
      prometheusType: guage
      help: Warm.
"""
    service = ExporterService(read(listed, gpu="simulated"), ManualClock())
    error = service._counters.status.error
    assert error is not None
    assert "config.yaml:9: type: found 'guage'" in error


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(NotFoundError, match="/no/such"):
        read_settings({"config-file": ["/no/such.yaml"]}, {}, "host-1")
