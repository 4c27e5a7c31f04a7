"""`gpuscale money --savings`: what tuned HPAs would save, workload by workload."""

import asyncio
import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.cli.options.prometheus import recorded_by
from gpuscale.cli.recordings import Recorded, Replay
from gpuscale.cli.texts import TicketOutput, print_ticket

if TYPE_CHECKING:
    from gpuscale.lab.tuning import WorkloadSaving
    from gpuscale.ops.money import Bill

Source = tuple[str, Path | None, Path | None]
"""URL, token file and CA file of a Prometheus."""
T = TypeVar("T")
DAYS = 14
"""Of a range that is not said: two of each day of the week, of which the last third is held back."""
_MOST_DAYS = 60
_TRIES = 64
"""Settings tried in breadth: a sixteenth of `gpuscale tune`'s, as here are many workloads."""
SETTINGS = ("spec.pipeline.hpaSyncPeriod=30s",)
"""Of the replayed controller, half as often as the real one's, which halves the work."""
_NOTE = (
    "kube-state-metrics has no behavior of HPAs: the default one was replayed; "
    "gpuscale tune --hpa FILE takes the file's"
)


def check_days(option: str, range_s: int) -> None:
    """Check the length of a range.

    Raises:
        UsageError: it is too short to hold days back or judge them, or too long.
    """
    if not 3 * 86_400 <= range_s <= _MOST_DAYS * 86_400:
        raise UsageError(f"{option}: found --since {range_s} s, expected 3 to {_MOST_DAYS} days")


def show_savings(
    to: Source,
    span: tuple[int, int],
    bill: "Bill",
    most: int,
    output: TicketOutput,
    show: Callable[[str], None],
) -> None:
    """Search settings for the dearest workloads that an HPA scales, and print what they save."""
    from gpuscale.lab.tuning import savings_document, savings_lines

    found, unseen = each_dearest(
        to,
        span,
        bill,
        most,
        show,
        lambda name, price: _tuned(replay_of(name, to, span), name, price),
    )
    print_ticket(
        output,
        lambda: savings_document(found, unseen, bill.currency),
        lambda table: savings_lines(found, unseen, bill.currency, table),
    )


def each_dearest(
    to: Source,
    span: tuple[int, int],
    bill: "Bill",
    most: int,
    show: Callable[[str], None],
    look: Callable[[str, float | None], T],
) -> tuple[list[T], dict[str, str]]:
    """Look at the dearest workloads that an HPA scales; return what was found, and why not of the others.

    Args:
        to: the Prometheus.
        span: the range, in seconds since the epoch.
        bill: of that range, which says what is dear and what a GPU-hour costs.
        most: so many workloads.
        show: gets what is done now.
        look: gets a workload's name, and what a GPU-hour of it costs where that is known.
    """
    lines = {
        f"{namespace}/{workload.removeprefix('Deployment/')}": line
        for (namespace, workload), line in bill.grouped("namespace", "workload").items()
        if workload.startswith("Deployment/")
    }
    scaled = asyncio.run(_scaled(to, span))
    wanted = [name for name in lines if name in scaled]
    found: list[T] = []
    unseen = dict.fromkeys(wanted[most:], f"the {most} dearest are; --most takes more")
    for number, name in enumerate(wanted[:most]):
        show(f"{name}, {number + 1} of {min(most, len(wanted))}")
        line = lines[name]
        try:
            found.append(look(name, line.money / line.priced if line.priced else None))
        except (UsageError, ConfigError) as error:
            unseen[name] = str(error)
    unseen |= {name: "no HPA scales it" for name in lines if name not in scaled}
    return found, unseen


def replay_of(
    name: str,
    to: Source,
    span: tuple[int, int],
    settings: Sequence[str] = SETTINGS,
    *,
    is_plain: bool = False,
) -> Replay:
    """Return a workload's recorded days; see `Replay`.

    Raises:
        UsageError, ConfigError: too little was recorded, or its HPA can't be replayed.
    """
    url, token_file, ca_file = to
    return Replay(
        Recorded(
            *(url, None, name, f"{span[1] - span[0]}s", str(span[1]), "60s", None, None),
            *((), None, None, token_file, ca_file),
        ),
        settings,
        is_plain=is_plain,
    )


async def _scaled(to: Source, span: tuple[int, int]) -> set[str]:
    """Return the Deployments that have an HPA, as `namespace/name`."""
    from gpuscale.ops.money import scaled_query
    from gpuscale.series import Vector
    from gpuscale.server.sources.prometheus import persistently

    async with recorded_by("--prometheus-url", *to) as source:
        value = await persistently(source.query, scaled_query(span[1] - span[0]), span[1] * 1000)
    rows = value.samples if isinstance(value, Vector) else ()
    return {f"{row.labels['namespace']}/{row.labels['scaletargetref_name']}" for row in rows}


def _tuned(replay: Replay, name: str, price: float | None) -> "WorkloadSaving":
    """Return a workload's saving.

    Raises:
        UsageError, ConfigError: too little was recorded, or its HPA can't be replayed.
    """
    from gpuscale.base.documents.documents import dump_documents
    from gpuscale.base.objects.hpa.manifest import hpa_manifest
    from gpuscale.cli.commands.tuning.writing import tuned_text
    from gpuscale.lab.sim.history import columns_of
    from gpuscale.lab.tuning import (
        HELD_BACK_PERCENT,
        SEED,
        Overrides,
        Promise,
        TuningRequest,
        WorkloadSaving,
        answer,
        manifest_of,
        of_setup,
        saving_of,
    )

    workload, autoscaler = of_setup(replay.setup, name, None, None, Overrides())
    asked = TuningRequest(
        (), Promise(), HELD_BACK_PERCENT / 100, _TRIES, SEED, workers=1, has_nodes=False
    )
    result = answer(workload, autoscaler, asked)
    diff, settings = "", {}
    if result.choice.is_gain and autoscaler.hpa is not None:
        before = dump_documents([hpa_manifest(autoscaler.hpa)])
        file = f"hpa/{name}"
        base = manifest_of(file, before)
        after = tuned_text(file, base, autoscaler, result.choice.taken.row.settings)
        now, then = columns_of(base.hpa), columns_of(manifest_of(file, after).hpa)
        settings = {key: value for key, value in then.items() if now[key] != value}
        diff = "\n".join(
            difflib.unified_diff(
                before.splitlines(), after.splitlines(), f"{file} now", f"{file} tuned", lineterm=""
            )
        )
    return WorkloadSaving(name, saving_of(result), price, diff, settings, (_NOTE, *replay.notes))
