"""`gpuscale tune` of a scenario with several workloads: what it prints and writes."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from gpuscale.base.errors import UsageError
from gpuscale.cli.commands.tuning.writing import base_of, tuned_text
from gpuscale.cli.exits import NO
from gpuscale.cli.files import write_files
from gpuscale.cli.progress import working
from gpuscale.cli.texts import Output, print_document, printable
from gpuscale.lab.sim.scenario import Setup
from gpuscale.lab.tuning import (
    FleetResult,
    Manifest,
    Overrides,
    TuningRequest,
    answer_together,
    fleet_text,
    of_fleet,
)


def tune_together(
    setup: Setup,
    scenario: str,
    workloads: Sequence[str],
    given: Overrides,
    asked: TuningRequest,
    output: Output,
    files: Mapping[str, str],
    write: str | None,
    *,
    force: bool,
) -> None:
    """Tune workloads together, and print and write the result.

    Args:
        setup: the scenario, resolved.
        scenario: its name or file.
        workloads: that are tuned; empty for all that have an HPA.
        given: what options say.
        asked: of the search.
        output: that is printed.
        files: to write the document to, with their formats.
        write: a file for the HPAs.
        force: whether it may be there already.
    """
    if ".html" in files.values():
        raise UsageError("--output-file: found .html and several workloads, expected .json")
    found = of_fleet(setup, scenario, workloads, given)
    bases = {}
    if write is not None:
        for at, each in enumerate(found.workloads):
            if each.autoscaler is not None and each.is_tuned:
                bases[at] = base_of(write, each.autoscaler, None, force=force)
    result = answer_together(found, asked, working)
    if output is Output.TEXT:
        print("\n".join(map(printable, fleet_text(result).splitlines())))
    else:
        print_document(result.document, output)
    texts = dict.fromkeys(files, json.dumps(result.document, ensure_ascii=False) + "\n")
    if write is not None and result.is_gain:
        texts[write] = _manifests(write, bases, result)
    write_files(texts)
    if write is not None and not result.is_gain:
        print(f"gpuscale: nothing to gain, so {write} not written", file=sys.stderr)
        raise typer.Exit(NO)


def _manifests(file: str, bases: Mapping[int, Manifest], result: FleetResult) -> str:
    """Return the tuned HPAs: in the file that is there, one after the other, or as a new one."""
    is_there = Path(file).exists()
    texts: list[str] = []
    for at, base in bases.items():
        autoscaler = result.found.workloads[at].autoscaler
        assert autoscaler is not None  # noqa: S101 - it has a base
        if is_there and texts:
            base = replace(base, text=texts.pop())
        texts.append(tuned_text(file, base, autoscaler, result.values(at)))
    return "---\n".join(texts)
