"""Savings of many workloads, as text and for programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ConfigDict

from gpuscale.base.documents.models import Model, load_one, parse_document
from gpuscale.base.pages.columns import Table, aligned
from gpuscale.lab.plan.promise import SHORT, percent_text
from gpuscale.lab.plan.saving import Saving, saving_of_values
from gpuscale.lab.sim.history.ledger import Advice
from gpuscale.lab.sim.history.ledger_shown import assumed_lines
from gpuscale.lab.tuning.answers import TuningResult
from gpuscale.lab.tuning.autoscaler import TARGET


def saving_of(result: TuningResult) -> Saving:
    """Return what the chosen settings save: nothing where there is nothing to gain."""
    contender = result.contender
    today = contender.today
    taken = result.choice.taken.values if result.choice.is_gain else today
    target = contender.named(today)[TARGET]
    return saving_of_values(result.workload, result.split, contender, taken, target)


@dataclass(frozen=True, slots=True)
class WorkloadSaving:
    """A workload's saving, with what to change."""

    name: str
    """`namespace/name` of the Deployment."""
    saving: Saving
    gpu_hour: float | None
    """What a GPU-hour of it costs; None where that is not known."""
    diff: str
    """Of the HPA's YAML; empty where there is nothing to gain."""
    settings: Mapping[str, float]
    """Of these what is recorded, `minReplicas`, `maxReplicas` and `target/METRIC`, with the new numbers."""
    notes: Sequence[str] = ()
    """What was assumed."""


_HEADS = (
    *("WORKLOAD", "GPU-HOURS A MONTH", "SAVED", "90 % OF DRAWS", "MONEY SAVED"),
    *("SHORT NOW", "THEN", "IDLE", "WHY"),
)


def savings_lines(
    found: Sequence[WorkloadSaving],
    unseen: Mapping[str, str],
    currency: str,
    table: Table = aligned,
) -> Iterator[str]:
    """Return savings as text, the largest first: a table, then what to change.

    Args:
        found: of workloads that could be replayed.
        unseen: the others, with the reason.
        currency: of prices.
        table: writes one; `aligned` or `markdown`, in which code is indented farther.
    """
    ordered = sorted(found, key=_order)
    yield from table([_HEADS, *(_cells(each, currency) for each in ordered)], {0, 8})
    for each in ordered:
        if each.diff:
            yield ""
            yield f"{each.name}:"
            blanks = "  " if table is aligned else "    "
            yield from ("",) if table is not aligned else ()
            yield from (f"{blanks}{line}" for line in each.diff.splitlines())
    yield from assumed_lines(((each.name, each.notes) for each in ordered), unseen)


def savings_document(
    found: Sequence[WorkloadSaving], unseen: Mapping[str, str], currency: str
) -> dict[str, object]:
    """Return the same for programs; nothing is rounded."""
    return {
        "currency": currency,
        "workloads": [_fields(each) for each in sorted(found, key=_order)],
        "notLookedAt": [{"workload": name, "reason": why} for name, why in unseen.items()],
    }


class AdvisedWorkload(Model):
    """What is read again of a workload in a document of savings."""

    model_config = ConfigDict(extra="ignore")

    workload: str
    gpu_hours_saved_a_month: float
    gpu_hours_saved_interval: tuple[float, float] | None
    settings: dict[str, float]


class AdviceDocument(Model):
    """What `gpuscale money --savings -o json` printed."""

    model_config = ConfigDict(extra="ignore")

    workloads: tuple[AdvisedWorkload, ...]


def read_advice(text: str, source: str) -> dict[str, Advice]:
    """Return the advice in a document of savings, by workload; those without any are left out.

    Raises:
        ConfigError: it is none.
    """
    document = parse_document(AdviceDocument, load_one(AdviceDocument, text, source))
    return {
        each.workload: Advice(
            each.settings,
            each.gpu_hours_saved_a_month,
            each.gpu_hours_saved_interval,
            SHORT.allowed,
        )
        for each in document.workloads
        if each.settings
    }


def _order(each: WorkloadSaving) -> tuple[float, float]:
    return -_money(each, each.saving.saved), -each.saving.saved


def _money(each: WorkloadSaving, gpu_hours: float) -> float:
    return gpu_hours * (each.gpu_hour or 0.0)


def _cells(each: WorkloadSaving, currency: str) -> tuple[str, ...]:
    saving = each.saving
    between = "-"
    if saving.interval is not None and each.diff:
        between = f"{saving.interval[0]:,.0f} to {saving.interval[1]:,.0f}"
    idle = sum(saving.idle.values())
    largest = sorted(saving.idle.items(), key=lambda item: -item[1])[:3]
    why = ", ".join(f"{why} {hours / saving.today:.0%}" for why, hours in largest if hours > 0)
    money = "-" if each.gpu_hour is None else f"{_money(each, saving.saved):,.2f} {currency}"
    return (
        *(each.name, f"{saving.today:,.0f}", f"{saving.saved:,.0f}", between, money),
        *(percent_text(saving.short_today), percent_text(saving.short)),
        *(f"{idle / saving.today:.0%}" if saving.today else "-", why),
    )


def _fields(each: WorkloadSaving) -> dict[str, object]:
    saving, interval = each.saving, each.saving.interval
    is_priced = each.gpu_hour is not None
    return {
        "workload": each.name,
        "heldBackDays": saving.days,
        "gpuHoursAMonth": saving.today,
        "gpuHoursSavedAMonth": saving.saved,
        "gpuHoursSavedInterval": interval and list(interval),
        "moneyAMonth": _money(each, saving.today) if is_priced else None,
        "moneySavedAMonth": _money(each, saving.saved) if is_priced else None,
        "moneySavedInterval": [_money(each, end) for end in interval]
        if is_priced and interval is not None
        else None,
        "shortShareNow": saving.short_today,
        "shortShareTuned": saving.short,
        "usedGpuHoursAMonth": saving.used,
        "idleGpuHoursAMonth": dict(saving.idle),
        "diff": each.diff,
        "settings": dict(each.settings),
        "notes": list(each.notes),
    }
