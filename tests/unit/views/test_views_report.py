import base64
import hashlib
import json
import re
import subprocess
import sys

import pytest

from gpuscale.base.pages.inline import embeddable_json
from gpuscale.lab.scenarios import find_setup, shipped_names
from gpuscale.lab.sim.simulation import simulate
from gpuscale.lab.views.report import render_report


@pytest.fixture
def document(finished):
    whole = finished.document()
    del whole["started"]
    return whole


def embedded(html):
    return re.search(r'<script type="application/json" id="run">(.*?)</script>', html, re.DOTALL)[1]


def module_script(html):
    return re.search(r'<script type="module">(.*?)</script>', html, re.DOTALL)[1]


def test_same_document_gives_the_same_report(document) -> None:
    assert render_report(document) == render_report(json.loads(json.dumps(document)))


def test_report_holds_the_whole_document(document) -> None:
    assert json.loads(embedded(render_report(document))) == document


def test_report_asks_the_network_for_nothing(document) -> None:
    html = render_report(document)
    assert "default-src 'none'" in html
    assert not re.search(r"(?:src|href)=\"(?!data:)", html)
    assert not re.search(r"\bfetch\(|EventSource|@import|^import ", html, re.MULTILINE)


def test_report_says_what_was_run(document) -> None:
    html = render_report(document)
    assert "<title>ack-bert · gpuscale</title>" in html
    assert "seed 1 · 30m of scenario time" in html


def test_text_of_a_document_never_becomes_markup(document) -> None:
    nasty = "</script><script>alert(1)</script>&<!--"
    html = render_report({**document, "scenario": nasty, "description": nasty})
    assert "<script>alert" not in html
    assert json.loads(embedded(html))["description"] == nasty


def test_dollar_signs_of_a_document_stay(document) -> None:
    html = render_report({**document, "description": "costs $1 and ${style}"})
    assert "costs $1 and ${style}" in html


def test_a_number_that_json_cannot_say_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        embeddable_json({"summary": {"cost": float("nan")}})


def test_modules_become_one_script_without_imports(document) -> None:
    script = module_script(render_report(document))
    assert "class ChartStack" in script
    assert "class EventList" in script
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)


def test_only_its_own_script_and_style_may_run(document) -> None:
    html = render_report(document)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)[1]
    for kind, text in (("script", module_script(html)), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("name", shipped_names())
def test_report_of_a_shipped_scenario_is_small(name) -> None:
    assert len(render_report(simulate(find_setup(name))).encode()) < 250_000


def test_no_module_uses_the_name_of_another_at_its_top() -> None:
    """One script has one scope: a second `const` of the same name would stop all of it."""
    script = module_script(render_report({}))
    names = re.findall(r"^(?:const|let|class|(?:async )?function) +(\w+)", script, re.MULTILINE)
    assert sorted(names) == sorted(set(names))


def test_rendering_does_not_import_rich() -> None:
    code = (
        "import sys; from gpuscale.lab.views import report, terminal; report.render_report({}); "
        "terminal.event_line({}); sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
