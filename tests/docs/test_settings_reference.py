"""The page of settings is what the code would write, and names every flag once."""

import re
from pathlib import Path

import pytest

from gpuscale.agent.exporter.settings import FLAGS as AGENT
from gpuscale.server.metricsapi.settings import FLAGS
from gpuscale.server.scaler.settings import FLAGS as SCALER
from settings_reference import settings_markdown

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()


def test_the_page_is_current() -> None:
    assert settings_markdown() == PAGE, "out of date: run make reference"


@pytest.mark.parametrize("name", sorted({*AGENT, *FLAGS, *SCALER}))
def test_every_flag_is_on_the_page(name: str) -> None:
    assert f"`--{name}`" in PAGE


@pytest.mark.parametrize("name", sorted(flag.env for flag in AGENT.values()))
def test_every_variable_of_the_agent_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("flags", [AGENT, FLAGS, SCALER], ids=["agent", "metrics-api", "scaler"])
def test_every_key_is_one_flags_and_of_one_form(flags) -> None:
    keys = [flag.key for flag in flags.values() if not flag.no_effect]
    assert len(set(keys)) == len(keys)
    assert [key for key in keys if not re.fullmatch(r"[a-z]+\.[a-z][A-Za-z0-9]*", key)] == []
