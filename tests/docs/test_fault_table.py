# mypy: disable-error-code="arg-type"
"""The table of faults on its page is that of the latest results."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_table_is_that_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delitem(sys.modules, "harness", raising=False)
    spec = importlib.util.spec_from_file_location("faults", ROOT / "benchmarks" / "faults.py")
    faults = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(faults)
    assert faults.table(json.loads(faults.RESULT.read_text())) in faults.PAGE.read_text()
