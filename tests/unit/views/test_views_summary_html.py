import re

from gpuscale.lab.views.report import summary_html

SUMMARY = {
    "duration": 2100.0,
    "hpas": {"gpu-hpa": {"maxReplicas": 2, "finalReplicas": 1}},
    "nodePools": {"gpu": {"maxNodes": 2}},
    "cost": None,
    "currency": "EUR",
    "poolsWithoutPrice": ["gpu"],
    "scaleOuts": {
        "count": 1,
        "ready": 1,
        "loadRises": 1,
        "meanLoadToDecisionTime": 15.0,
        "meanLoadToReadyTime": 180.0,
        "meanDecisionToReadyTime": 165.0,
    },
}


def totals(summary):
    markup = summary_html({"summary": summary})
    return dict(re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd></div>", markup))


def test_times_end_at_the_decision_and_at_ready_pods() -> None:
    # 15 s + 165 s = 180 s
    found = totals(SUMMARY)
    assert found["Load rise to decision"] == "15 s"
    assert found["Load rise to ready pods"] == "3 min"
    assert found["Decision to ready pods"] == "2 min 45 s"


def test_cost_is_absent_without_a_price_and_has_a_currency_with_one() -> None:
    assert totals(SUMMARY)["Cost"] == "no price given"
    assert totals({**SUMMARY, "cost": 3.41})["Cost"] == "3.41 EUR"


def test_little_energy_is_in_watt_hours() -> None:
    # Four minutes of one GPU at 90 W: 6 Wh.
    assert totals({**SUMMARY, "gpuEnergyKwh": 0.006})["GPU energy"] == "6 Wh"
    assert totals({**SUMMARY, "gpuEnergyKwh": 12.5})["GPU energy"] == "12.5 kWh"


def test_tables_have_a_row_per_name_and_a_title_per_cell() -> None:
    markup = summary_html({"summary": SUMMARY})
    assert "<h3>HPAs</h3>" in markup
    assert (
        '<tr><th scope="row">gpu-hpa</th><td class="number" data-title="Max replicas">2</td>'
        in markup
    )


def test_text_never_becomes_markup() -> None:
    nasty = "<script>alert(1)</script>\"'&"
    summary = {nasty: nasty, "hpas": {nasty: {nasty: nasty}}, "currency": nasty, "cost": 1.0}
    markup = summary_html({"summary": summary})
    assert "<script" not in markup.lower()
    assert "&lt;script&gt;" in markup.lower()


def test_no_summary_is_no_totals_and_no_tables() -> None:
    assert summary_html({}) == '<dl class="totals"></dl><div class="tables"></div>'
