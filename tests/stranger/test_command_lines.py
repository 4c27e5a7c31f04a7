"""No page names a command or a flag that gpuscale does not have, also where it can't be run on a laptop."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from gpuscale.cli.registry import app
from gpuscale.cli.servers import agent, scaling, serving

sys.path.insert(0, str(Path(__file__).parent))

import pages

READ_AS_GO_DOES = {
    "exporter": agent.plain_arguments,
    "metrics-api": serving.plain_arguments,
    "scaler": scaling.plain_arguments,
}


def faults(words):
    """Return what is wrong with the words after `gpuscale`, by the program's own parser; nothing is run."""
    command = typer.main.get_command(app)
    context = command.context_class(command, info_name="gpuscale")
    found = []
    while True:
        try:
            _, rest, order = command.make_parser(context).parse_args(list(words))
        except Exception as error:  # noqa: BLE001 - typer keeps its class of usage errors to itself
            return [*found, str(error)]
        found += [
            f"{option.opts[0]} is an old spelling" for option in order if _is_old(option, command)
        ]
        if not isinstance(command, TyperGroup) or not rest:
            return found
        name, *words = rest
        inner = command.get_command(context, name)
        if inner is None:
            return [*found, f"there is no command {name}"]
        words = READ_AS_GO_DOES.get(name, list)(words)
        context = inner.context_class(inner, info_name=name, parent=context)
        command = inner


def _is_old(option, command):
    return getattr(option, "hidden", False) and command.name not in READ_AS_GO_DOES


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.page_name)
def test_commands_and_flags_are_those_of_the_program(page) -> None:
    wrong = [
        f"gpuscale {' '.join(words)}: {fault}"
        for words in pages.gpuscale_lines(page)
        for fault in faults(words)
    ]
    assert wrong == []


def commands(command, context):
    yield command
    for name in command.list_commands(context) if isinstance(command, TyperGroup) else ():
        yield from commands(command.get_command(context, name), context)


def test_examples_of_help_are_those_of_the_program() -> None:
    command = typer.main.get_command(app)
    context = command.context_class(command, info_name="gpuscale")
    helps = [each.help for each in commands(command, context) if each.help]
    examples = [line for text in helps for line in text.splitlines() if "Example:" in line]
    wrong = [
        f"{line.strip()}: {fault}"
        for line in examples
        for words in pages.runs_of_gpuscale(line.partition("Example:")[2])
        for fault in faults(words)
    ]
    assert len(examples) >= len(helps) - 1  # the program itself has none
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("gpuscale simulate ack-bert --seed 3", None),
        ("kubectl get hpa | gpuscale decide -", None),
        ("NODE_NAME=a gpuscale exporter -kubernetes=true --gpu nvml &", None),
        ("gpuscale simulat ack-bert", "simulat"),
        ("x && .venv/bin/gpuscale simulate ack-bert --sed 3", "--sed"),
        ("gpuscale metrics-api why pods/a/b NAME --selektor a=b", "--selektor"),
        ("gpuscale init --provider", "--provider"),
        ("gpuscale simulate ack-bert --html FILE", "--html is an old spelling"),
    ],
)
def test_the_check_sees_what_is_wrong(line: str, fault: str | None, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```sh\n{line}\n```\n")
    (words,) = pages.gpuscale_lines(page)
    said = " ".join(faults(words))
    assert fault in said if fault else said == ""


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.page_name)
def test_files_are_named_in_the_text(page) -> None:
    assert pages.unnamed_files(page) == []


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.page_name)
def test_what_is_marked_as_shell_is_shell(page) -> None:
    for block in pages.blocks(page):
        if block.kind in ("sh", "bash"):
            done = subprocess.run(
                ["bash", "-n"], input=block.body, capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stderr) == (0, ""), block.body


@pytest.mark.parametrize(
    ("wanted", "printed", "does"),
    [
        (["a b"], ["a   b"], True),
        (["a"], ["a", "b"], False),
        (["a", "..."], ["a", "b", "c"], True),
        (["..."], [], True),
        (["x=... y"], ["x=1.5 y"], True),
        (["x=... y"], ["x=1.5", "y"], False),
        (["(a.c)"], ["(abc)"], False),
    ],
)
def test_output_is_compared_line_by_line(wanted: list[str], printed, does: bool) -> None:
    assert pages.matches(wanted, printed) is does
