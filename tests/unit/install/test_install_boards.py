"""Dashboards are what Grafana 10 and later take, and have all that dashboard 12239 shows."""

import itertools
import json
import re

import pytest
from install_values import values

from gpuscale.ops.install.rendering import board_files

FILES = board_files(values())
BOARDS = list(map(json.loads, FILES.values()))
# Of Grafana's own panels, those without a successor; and units of its catalogue (getValueFormats).
KINDS = {"row", "timeseries", "stat", "gauge", "table", "state-timeline"}
UNITS = {
    *("short", "none", "percent", "percentunit", "s", "reqps", "currencyUSD"),
    *("celsius", "watt", "kwatth", "hertz", "mbytes", "bytes", "Bps", "MBs"),
}
BUILT_IN = {"__rate_interval", "__range", "__all"}
# The queries of dashboard 12239 less their filter: dcgm-exporter's grafana/dcgm-exporter-dashboard.json.
OF_12239 = {
    "GPU Temperature": "DCGM_FI_DEV_GPU_TEMP{}",
    "GPU Avg. Temp": "avg(DCGM_FI_DEV_GPU_TEMP{})",
    "GPU Power Usage": "DCGM_FI_DEV_POWER_USAGE{}",
    "GPU Power Total": "sum(DCGM_FI_DEV_POWER_USAGE{})",
    "GPU SM Clocks": "DCGM_FI_DEV_SM_CLOCK{} * 1000000",
    "GPU Utilization": "DCGM_FI_DEV_GPU_UTIL{}",
    "Tensor Core Utilization": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{}",
    "GPU Framebuffer Mem Used": "DCGM_FI_DEV_FB_USED{}",
}

every_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])


def areas(board):
    for panel in board["panels"]:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        yield set(itertools.product(columns, range(place["y"], place["y"] + place["h"])))


@every_board
def test_panels_are_on_the_grid_and_none_is_over_another(board) -> None:
    seen = set()
    for area in areas(board):
        assert max(column for column, _ in area) < 24
        assert not seen & area
        seen |= area


@every_board
def test_panels_have_numbers_and_titles_of_their_own(board) -> None:
    for name in ("id", "title"):
        found = [panel[name] for panel in board["panels"]]
        assert len(set(found)) == len(found)


@every_board
def test_nothing_belongs_to_one_grafana(board) -> None:
    assert board["id"] is None
    assert len(board["uid"]) <= 40
    assert "__inputs" not in board
    for panel in board["panels"]:
        for part in (panel, *panel.get("targets", ())):
            if panel["type"] != "row":
                assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@every_board
def test_every_variable_in_use_is_there_before_it_is_used(board) -> None:
    known = set(BUILT_IN)
    for variable in board["templating"]["list"]:
        assert used(json.dumps(variable)) <= known
        known.add(variable["name"])
    assert used(json.dumps(board["panels"])) <= known


def properties(panel):
    """Return what holds for the values of a panel; of a table they are one column."""
    (column,) = panel["fieldConfig"]["overrides"] if panel["type"] == "table" else ({},)
    own = {each["id"]: each["value"] for each in column.get("properties", ())}
    return {**panel["fieldConfig"]["defaults"], **own}


def used(text):
    return {name for pair in re.findall(r"\$(?:\{(\w+)\}|(\w+))", text) for name in pair if name}


@every_board
def test_kinds_of_panels_and_units_are_grafanas(board) -> None:
    for panel in board["panels"]:
        assert panel["type"] in KINDS
        if panel["type"] != "row":
            assert properties(panel)["unit"] in UNITS


@every_board
def test_labels_in_tables_have_no_unit(board) -> None:
    """Else Grafana 10 shows the label gpu="0" as 0 MiB."""
    for panel in board["panels"]:
        if panel["type"] == "table":
            assert panel["fieldConfig"]["defaults"] == {}
            (column,) = panel["fieldConfig"]["overrides"]
            assert column["matcher"] == {"id": "byName", "options": "Value"}
            assert len(panel["targets"]) == 1  # with two, columns are "Value #A" and "Value #B"


@every_board
def test_words_are_shown(board) -> None:
    """Coloured by thresholds, Grafana's state timeline shows the threshold in place of the word."""
    for panel in board["panels"]:
        if panel["type"] == "state-timeline":
            found = panel["fieldConfig"]["defaults"]
            assert found["color"]["mode"] != "thresholds"
            (words,) = found["mappings"]
            assert {each["text"] for each in words["options"].values()} == {"yes", "no"}


@every_board
def test_gaps_stay_gaps(board) -> None:
    for panel in board["panels"]:
        if panel["type"] == "timeseries":
            assert panel["fieldConfig"]["defaults"]["custom"]["spanNulls"] is False


def test_everything_of_dashboard_12239_is_there() -> None:
    panels = {panel["title"]: panel for panel in BOARDS[0]["panels"]}
    for title, expr in OF_12239.items():
        (target,) = panels[title]["targets"]
        assert re.sub(r"\{[^}]*\}", "{}", target["expr"]) == expr


def test_the_loop_is_on_one_time_axis_in_its_order() -> None:
    (board,) = [each for each in BOARDS if each["uid"] == "gpuscale-autoscaling"]
    hops = [panel for panel in board["panels"] if re.match(r"\d ", panel["title"])]
    assert [panel["title"].split(":")[0] for panel in hops] == [
        "1 Signal",
        "2 Value served",
        "3 Wanted",
        "4 Running",
        "5 Nodes",
    ]
    # All as wide as the page, below each other, with one cursor.
    assert {(panel["gridPos"]["x"], panel["gridPos"]["w"]) for panel in hops} == {(0, 24)}
    assert board["graphTooltip"] == 1
    # And what stands beside the plot has one width: the same time is at the same place.
    for panel in hops:
        assert panel["fieldConfig"]["defaults"]["custom"]["axisWidth"] == 70
        assert panel["options"]["legend"]["width"] == 400
    (glance,) = [each for each in board["panels"] if each["title"].startswith("Signal, value")]
    assert glance["options"]["legend"]["width"] == 400 - 70  # it has an axis on the right too


def test_the_price_is_the_values() -> None:
    found = board_files(values(dashboards={"gpuHourPrice": 3.25, "currency": "EUR"}))
    cost = json.loads(found["gpuscale-cost.json"])
    (price,) = [each for each in cost["templating"]["list"] if each["name"] == "price"]
    assert (price["query"], price["label"]) == ("3.25", "EUR per GPU-hour")
    units = {properties(each)["unit"] for each in cost["panels"] if "targets" in each}
    assert "currencyEUR" in units
    assert "currencyUSD" not in units


def test_labels_are_those_that_prometheus_stores() -> None:
    found = "".join(board_files(values(prometheus={"honorLabels": False})).values())
    assert "{{exported_namespace}}/{{exported_pod}}" in found
    of_agents = re.findall(r"DCGM_FI_DEV_GPU_UTIL\{[^}]*\}", found)
    assert not [each for each in of_agents if re.search(r"[ ,{](pod|namespace)[=!]", each)]


def test_files_are_called_as_their_dashboards() -> None:
    """So that links, which go by the uid, and files stay together."""
    assert [f"{each['uid']}.json" for each in BOARDS] == list(FILES)


def test_dashboards_can_be_left_out() -> None:
    assert board_files(values(dashboards={"enabled": False})) == {}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_no_placeholder_is_left(text) -> None:
    upper = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", re.sub(r"\bDCGM_\w+", "", text)))
    assert upper <= {"GPU_I_ID", "GPU_I_PROFILE"}  # labels of dcgm-exporter
