"""The node agent's own way through the command line: what it takes, what it leaves to typer."""

import subprocess
import sys

import pytest

from gpuscale.cli import main
from gpuscale.cli.registry import app
from gpuscale.cli.servers import agent


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ([], {}),
        (["-k"], {"kubernetes": ["true"]}),
        (["-collectors", "a.csv", "-c=1s"], {"collectors": ["a.csv"], "collect-interval": ["1s"]}),
        (["--gpu=amd", "--gpu", "nvml"], {"gpu": ["nvml"]}),
        (["--devices", "--"], {"devices": ["--"]}),
        (["--node-pool="], {"node-pool": [""]}),
    ],
)
def test_flags_with_their_values_need_no_typer(typed, given) -> None:
    assert agent.given_texts(typed) == given


@pytest.mark.parametrize(
    "typed",
    [["--help"], ["-k", "-h"], ["--gpu"], ["--unknown", "1"], ["word"], ["-k", "true"], ["-c1s"]],
)
def test_help_mistakes_and_click_s_own_spellings_are_left_to_typer(typed: list[str]) -> None:
    assert agent.given_texts(typed) is None


@pytest.mark.parametrize(
    "typed",
    [
        [],
        ["-k", "--kubernetes=false", "-f", "a.csv", "-rbmn"],
        ["--gpu", "simulated:NVIDIA H200:8", "-collect-interval=1s", "--gpu=amd"],
        ["--devices", "--", "--node-pool", ""],
    ],
)
def test_typer_hands_over_the_same(typed, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_over = []
    monkeypatch.setattr(agent, "run", lambda given: handed_over.append(dict(given)))
    monkeypatch.setattr(sys, "argv", ["gpuscale", "exporter", *typed])
    main.main()
    app(sys.argv[1:], standalone_mode=False)
    direct, by_typer = handed_over
    assert direct == by_typer


def test_settings_come_before_what_decides_on_tls() -> None:
    code = (
        "import sys, gpuscale.cli.servers.agent, gpuscale.agent.exporter.settings\n"
        "late = {'asyncio', 'ssl', 'aiohttp', 'typer'}\n"
        "print(sorted(late & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
