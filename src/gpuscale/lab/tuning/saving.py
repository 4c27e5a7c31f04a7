"""Savings of many workloads, as text and for programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.pages.columns import aligned
from gpuscale.base.words import counted
from gpuscale.lab.plan.promise import percent_text
from gpuscale.lab.plan.saving import Saving, saving_of_values
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
    notes: Sequence[str] = ()
    """What was assumed."""


_HEADS = (
    *("WORKLOAD", "GPU-HOURS A MONTH", "SAVED", "90 % OF DRAWS", "MONEY SAVED"),
    *("SHORT NOW", "THEN", "IDLE", "WHY"),
)


def savings_lines(
    found: Sequence[WorkloadSaving], unseen: Mapping[str, str], currency: str
) -> Iterator[str]:
    """Return savings as text, the largest first: a table, then what to change.

    Args:
        found: of workloads that could be replayed.
        unseen: the others, with the reason.
        currency: of prices.
    """
    ordered = sorted(found, key=_order)
    yield from aligned([_HEADS, *(_cells(each, currency) for each in ordered)], {0, 8})
    for each in ordered:
        if each.diff:
            yield ""
            yield f"{each.name}:"
            yield from (f"  {line}" for line in each.diff.splitlines())
    notes: dict[str, list[str]] = {}
    for each in ordered:
        for note in each.notes:
            notes.setdefault(note, []).append(each.name)
    if notes or unseen:
        yield ""
    for note, names in notes.items():
        shown = names[0] if len(names) == 1 else counted(len(names), "workload")
        yield f"Assumed of {shown}: {note}."
    for name, reason in unseen.items():
        yield f"Not looked at: {name}: {reason}"


def savings_document(
    found: Sequence[WorkloadSaving], unseen: Mapping[str, str], currency: str
) -> dict[str, object]:
    """Return the same for programs; nothing is rounded."""
    return {
        "currency": currency,
        "workloads": [_fields(each) for each in sorted(found, key=_order)],
        "notLookedAt": [{"workload": name, "reason": why} for name, why in unseen.items()],
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
        "notes": list(each.notes),
    }
