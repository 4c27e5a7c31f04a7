"""`gpuscale money --ledger`: each day against other settings, and whether advice came true."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.base.text_files import read_text
from gpuscale.cli.commands.savings import SETTINGS, Source, each_dearest, replay_of
from gpuscale.cli.recordings import Recorded, Replay
from gpuscale.cli.texts import TicketOutput, print_ticket

if TYPE_CHECKING:
    from gpuscale.lab.sim.history import Advice, Ledger
    from gpuscale.ops.money import Bill, PriceBook

_SETTINGS = (*SETTINGS, "spec.pipeline.scrapeInterval=30s")


def advice_of(file: Path | None) -> "Mapping[str, Advice]":
    """Return the advice in a file, by workload.

    Raises:
        ConfigError: it is no document of savings.
    """
    if file is None:
        return {}
    from gpuscale.lab.tuning import read_advice  # it needs numpy

    return read_advice(read_text(str(file)), str(file))


def show_ledger(
    to: Source,
    span: tuple[int, int],
    bill: "Bill",
    most: int,
    advice: "Mapping[str, Advice]",
    output: TicketOutput,
    show: Callable[[str], None],
) -> None:
    """Replay the dearest workloads that an HPA scales, and print their days against other settings."""
    found, unseen = each_dearest(
        to,
        span,
        bill,
        most,
        show,
        lambda name, price: _ledger(
            replay_of(name, to, span, _SETTINGS, is_plain=True), name, price, advice.get(name)
        ),
    )
    seen = {each.name for each in found}
    unseen |= {name: "no such workload" for name in advice if name not in seen | unseen.keys()}
    _print(found, unseen, bill.currency, output)


def show_file_ledger(
    recorded: Recorded, book: "PriceBook", advice: "Mapping[str, Advice]", output: TicketOutput
) -> None:
    """Replay a recording in a file, and print its days against other settings.

    Raises:
        UsageError, ConfigError: the files or options can't be used.
    """
    from gpuscale.ops.money import HourPrice, NodeFacts

    recorded.check(None)
    name = "/".join(recorded.key)
    replay = Replay(recorded, _SETTINGS, is_plain=True)
    price = book.of(NodeFacts(model=replay.facts.gpu_model), 1)
    amount, currency = (
        (price.amount, price.currency) if isinstance(price, HourPrice) else (None, "")
    )
    _print([_ledger(replay, name, amount, advice.get(name))], {}, currency, output)


def _print(
    found: "Sequence[Ledger]", unseen: Mapping[str, str], currency: str, output: TicketOutput
) -> None:
    from gpuscale.lab.sim.history import ledger_document, ledger_lines

    print_ticket(
        output,
        lambda: ledger_document(found, unseen, currency),
        lambda table: ledger_lines(found, unseen, currency, table),
    )


def _ledger(replay: Replay, name: str, price: float | None, advice: "Advice | None") -> "Ledger":
    """Return a workload's days.

    Raises:
        UsageError: no HPA scales it.
    """
    from gpuscale.lab.sim.history import Replays, columns_of, ledger_of
    from gpuscale.lab.tuning import Overrides, default_change, of_setup

    notes = list(replay.notes)
    if len(replay.setup.hpas) != 1:
        raise UsageError(f"{name}: found {len(replay.setup.hpas)} HPAs, expected one")
    default = None
    try:
        default = default_change(of_setup(replay.setup, name, None, None, Overrides())[1])
    except (UsageError, ConfigError) as error:
        notes.append(f"no HPA of defaults: {error}")
    replays = Replays(
        replay.recording,
        replay.demand,
        replay.facts.gpus_per_pod,
        columns_of(replay.setup.hpas[0]),
        replay.hpa_changes,
        replay.replicas,
    )
    return ledger_of(name, replays, default, advice, price, notes)
