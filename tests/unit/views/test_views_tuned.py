"""The page of `gpuscale tune`: what it says, and that nothing in it runs."""

import copy
import re
from typing import Any

import pytest

from gpuscale.lab.views.tuned import render_tuned

ROW: dict[str, Any] = {
    "name": "today",
    "title": "the HPA as it is",
    "settings": {"target": 0.6},
    "gpuHours": 200.0,
    "isKept": True,
    "kept": "0.00 %",
    "shortShare": 0.0,
    "waitP95Seconds": 0.0,
    "waitP99Seconds": 0.5,
    "withinShare": 0.999,
    "changes": 12,
}
FOUND: dict[str, Any] = {
    "workload": "default/chat",
    "days": 14.0,
    "scoredDays": 5.0,
    "settingsTried": 1234,
    "isGain": True,
    "promise": ["short=0.5%"],
    "rows": [
        ROW,
        ROW | {"name": "tuned", "gpuHours": 150.0, "settings": {"target": 0.8}},
        ROW | {"name": "kpa", "gpuHours": 100.0, "isKept": False, "settings": {}},
    ],
    "offers": [ROW | {"name": "tuned", "promise": "short=0.25%", "gpuHours": 160.0}],
    "nodePool": None,
    "bounds": {
        "staticReplicas": 3,
        "staticGpuHours": 180.0,
        "simpleRuleGpuHours": 120.0,
        "oracleGpuHours": 90.0,
    },
    "said": ["As it is, autoscaling costs more than 3 pods standing still."],
}


def test_it_says_what_was_found():
    page = render_tuned(FOUND)
    assert "<dd>25.00 %</dd>" in page  # 150 of 200 GPU-hours
    assert "autoscaling costs more than 3 pods standing still" in page
    assert '<th scope="row">target</th><td class="number" data-title="today">0.6</td>' in page
    assert "cost" not in re.findall(r'<th scope="col" class="number">(.*?)</th>', page)
    assert "short=0.25%" in page
    assert "default/chat: 14 days of demand, scored on 5 days" in page
    assert "<dd>150.0 GPU-hours</dd>" in page


def test_it_says_where_nothing_is_gained():
    page = render_tuned(FOUND | {"isGain": False})
    assert "<dd>nothing to gain</dd>" in page
    assert "25.00 %" not in page


def test_a_short_demand_is_in_hours_and_minutes():
    page = render_tuned(FOUND | {"days": 0.03125, "scoredDays": 0.03125})
    assert "default/chat: 45m of demand, searched and scored" in page


def test_a_node_pool_has_a_table_and_its_settings():
    row = ROW | {"nodeHours": 48.0, "cost": 96.0, "currency": "EUR"}
    best = row | {
        "name": "with nodes",
        "nodeHours": 24.0,
        "settings": {"target": 0.9, "min_nodes": 2},
    }
    page = render_tuned(FOUND | {"nodePool": {"name": "gpu", "rows": [row, row, best]}})
    assert "On nodes of the pool gpu" in page
    assert '<td class="number" data-title="node-hours">24.0</td>' in page
    assert '<td class="number" data-title="cost">96.00 EUR</td>' in page
    assert (
        '<th scope="row">min_nodes</th><td class="number" data-title="today">-</td>'
        '<td class="number" data-title="tuned">-</td><td class="number" data-title="with nodes">2</td>'
    ) in page


def test_the_longest_bar_fills_its_room_and_a_broken_promise_is_red():
    (wide,) = re.findall(r'<svg class="bars wide".*?</svg>', render_tuned(FOUND))
    bars = re.findall(r'<rect class="(\w+)" .*?width="([\d.]+)"', wide)
    # 760 wide, less 118 for names and 74 for numbers: 568 for 200 GPU-hours.
    assert bars == [
        ("kept", "568.0"),
        ("kept", "426.0"),
        ("missed", "284.0"),
        ("bound", "511.2"),
        ("bound", "340.8"),
        ("bound", "255.6"),
    ]


@pytest.mark.parametrize("hours", [0.0, 1e9])
def test_any_figures_can_be_drawn(hours):
    found = copy.deepcopy(FOUND)
    for row in found["rows"]:
        row["gpuHours"] = hours
    for key in ("staticGpuHours", "simpleRuleGpuHours", "oracleGpuHours"):
        found["bounds"][key] = hours
    assert "nan" not in render_tuned(found).split("</style>")[1]


def test_text_never_becomes_markup_and_nothing_runs():
    nasty = "</style><script>alert(1)</script>"
    page = render_tuned(FOUND | {"workload": nasty, "said": [nasty]})
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert " style=" not in page
