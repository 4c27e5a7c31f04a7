"""A shadow's books as text and for programs."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from gpuscale.base.pages.columns import aligned
from gpuscale.base.pages.words import NO_DATA, plain_text, seconds_text
from gpuscale.base.words import counted, rfc3339
from gpuscale.ops.money.prices import HourPrice
from gpuscale.ops.shadow.books import Account, Shadow, Step

_MOST_REASONS = 10
_MODEL = (
    "Values are those of the pods that run: the shadow's own would have others, as soon as it has another "
    "number of them."
)


def step_lines(step: Step) -> Iterator[str]:
    """Return a step as text: both counts, and why."""
    yield f"{_clock(step.at_ms)}  real {_moved(step.real)}, shadow {_moved(step.shadow)}"
    for who, why in (("real", step.real_why), ("shadow", step.shadow_why)):
        yield from (f"          {who}: {plain_text(each)}" for each in why)


def shadow_lines(shadow: Shadow, gpus: int | None, price: HourPrice | str) -> Iterator[str]:
    """Return the books as text.

    Args:
        shadow: with at least a sync.
        gpus: of each pod, where that is known.
        price: of a GPU for an hour, or why it is not known.
    """
    both = shadow.real, shadow.shadow
    money = _money(price)
    rows: list[Sequence[str]] = [
        ("", "REAL", "SHADOW"),
        ("replicas now", *(str(each.replicas) for each in both)),
        ("changes", *(str(each.steps) for each in both)),
        ("pod-hours", *(f"{each.pod_hours:,.2f}" for each in both)),
        ("GPU-hours", *(_or_none(_gpu_hours(each, gpus)) for each in both)),
        (
            f"money, {price.currency}" if isinstance(price, HourPrice) else "money",
            *(_or_none(_cost(each, gpus, money)) for each in both),
        ),
        ("short, pod-hours", *(f"{each.short_pod_hours:,.2f}" for each in both)),
        ("short for", *(seconds_text(each.short_ms / 1000) for each in both)),
    ]
    yield from aligned(rows, (0,))
    yield ""
    seen, of_all = shadow.seen_ms / 1000, (shadow.end_ms - (shadow.begin_ms or 0)) / 1000
    yield (
        f"Over {seconds_text(seen)}, in {counted(shadow.syncs, 'sync')}: the shadow had more replicas for "
        f"{seconds_text(shadow.more_ms / 1000)}, fewer for {seconds_text(shadow.fewer_ms / 1000)}."
    )
    yield "Short is what its own metrics asked for, and bounds, windows and rates kept from it."
    yield _MODEL
    if isinstance(price, HourPrice):
        yield f"Price: {price.amount:,.4g} {price.currency} for a GPU-hour; {price.source}."
    else:
        yield f"Without a price: {price}."
    if of_all > seen:
        yield f"Not seen, and not counted: {seconds_text(of_all - seen)}."
    for reason, times in shadow.faults.most_common(_MOST_REASONS):
        yield f"{times} x {plain_text(reason)}"
    if len(shadow.faults) > _MOST_REASONS:
        yield f"and {len(shadow.faults) - _MOST_REASONS} more reasons; -o json has them"


def shadow_document(
    shadow: Shadow, gpus: int | None, price: HourPrice | str
) -> Mapping[str, object]:
    """Return the books for programs; hours and money are not rounded. The arguments are `shadow_lines`'."""
    money = _money(price)
    return {
        "from": None if shadow.begin_ms is None else rfc3339(shadow.begin_ms / 1000),
        "to": None if shadow.begin_ms is None else rfc3339(shadow.end_ms / 1000),
        "syncs": shadow.syncs,
        "secondsSeen": shadow.seen_ms / 1000,
        "real": _fields(shadow.real, gpus, money),
        "shadow": _fields(shadow.shadow, gpus, money),
        "secondsMore": shadow.more_ms / 1000,
        "secondsFewer": shadow.fewer_ms / 1000,
        "gpusPerPod": gpus,
        "gpuHourPrice": money,
        "currency": price.currency if isinstance(price, HourPrice) else None,
        "priceSource": price.source if isinstance(price, HourPrice) else price,
        "steps": [
            {
                "time": rfc3339(each.at_ms / 1000),
                "real": {"from": each.real[0], "to": each.real[1], "why": list(each.real_why)},
                "shadow": {
                    "from": each.shadow[0],
                    "to": each.shadow[1],
                    "why": list(each.shadow_why),
                },
            }
            for each in shadow.steps
        ],
        "faults": [{"reason": reason, "count": times} for reason, times in shadow.faults.items()],
        "model": _MODEL,
    }


def _fields(account: Account, gpus: int | None, money: float | None) -> Mapping[str, object]:
    return {
        "replicas": account.replicas,
        "changes": account.steps,
        "podHours": account.pod_hours,
        "gpuHours": _gpu_hours(account, gpus),
        "money": _cost(account, gpus, money),
        "shortPodHours": account.short_pod_hours,
        "secondsShort": account.short_ms / 1000,
    }


def _gpu_hours(account: Account, gpus: int | None) -> float | None:
    return None if gpus is None else account.pod_hours * gpus


def _cost(account: Account, gpus: int | None, money: float | None) -> float | None:
    return None if gpus is None or money is None else account.pod_hours * gpus * money


def _money(price: HourPrice | str) -> float | None:
    return price.amount if isinstance(price, HourPrice) else None


def _or_none(amount: float | None) -> str:
    return NO_DATA if amount is None else f"{amount:,.2f}"


def _moved(counts: tuple[int, int]) -> str:
    return f"{counts[0]} -> {counts[1]}" if counts[0] != counts[1] else str(counts[1])


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S")
