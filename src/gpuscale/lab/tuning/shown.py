"""The result of `gpuscale tune`, as a document and as text."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from textwrap import wrap

from gpuscale.lab.plan.bounds import GpuHourBounds
from gpuscale.lab.plan.choosing import Offer, SearchChoice
from gpuscale.lab.plan.comparing import (
    ReplayedWorkload,
    ScoredPolicy,
    Split,
    length_text,
)
from gpuscale.lab.plan.promise import Promise, percent_text
from gpuscale.lab.plan.tuning.search import DAY_S
from gpuscale.lab.tuning.answers import Pooled, TuningRequest, TuningResult

_HEADINGS = ("GPU-hours", "cost", "short", "wait p95", "p99", "in time", "changes")
_COST = 2
_IMPORTANCE = (1, 3, 7, 2, 4, 5, 6)
"""Of the columns; the last goes first where a terminal is narrow."""
_PIPED_WIDTH = 100


def document_of(
    workload: ReplayedWorkload,
    split: Split,
    rows: Sequence[ScoredPolicy],
    offered: Sequence[Offer],
    limits: GpuHourBounds,
    choice: SearchChoice,
    said: Sequence[str],
    asked: TuningRequest,
    tried: int,
    pooled: Pooled | None,
    *,
    is_whole: bool,
) -> dict[str, object]:
    """Return the result as JSON-shaped data, with cost only if there are prices."""
    service, nodes = workload.service, workload.nodes
    gpus = nodes.gpus_per_replica
    step_days = service.step_s / DAY_S
    return {
        "workload": workload.name,
        "days": len(workload.demand) * step_days,
        "searchedDays": split.searched * step_days,
        "scoredDays": (len(workload.demand) - split.first_scored) * step_days,
        "isHeldBack": split.is_held_back,
        "isWhole": is_whole,
        "isGain": choice.is_gain,
        "settingsTried": tried,
        "promise": [str(each) for each in asked.promise.terms],
        "service": service._asdict(),
        "nodes": asdict(nodes),
        "rows": [_row(row, nodes.currency, asked.promise) for row in rows],
        "offers": [
            {
                "promise": str(asked.promise.scaled(each.share)),
                **_row(each.row, nodes.currency, asked.promise),
            }
            for each in offered
        ],
        "nodePool": None if pooled is None else _pooled(pooled, nodes.currency, asked.promise),
        "bounds": {
            "staticReplicas": limits.static_replicas,
            "staticGpuHours": limits.static_hours * gpus,
            "oracleGpuHours": limits.oracle_hours * gpus,
            "simpleRuleGpuHours": limits.simple_rule_hours * gpus,
        },
        "said": list(said),
    }


def _pooled(pooled: Pooled, currency: str, promise: Promise) -> dict[str, object]:
    return {
        "name": pooled.pool.name,
        "provider": pooled.pool.provider,
        "isGain": pooled.choice.is_gain,
        "rows": [_row(row, currency, promise) for row in pooled.rows],
    }


def _row(row: ScoredPolicy, currency: str, promise: Promise) -> dict[str, object]:
    score = row.score
    cost = {} if score.cost is None else {"cost": score.cost, "currency": currency}
    return {
        "name": row.name,
        "title": row.title,
        "settings": row.settings,
        "gpuHours": score.gpu_hours,
        "nodeHours": score.node_hours,
        **cost,
        "isKept": promise.used(score.missed) <= 1,
        "kept": promise.figures(score.missed),
        "keptChance": row.chance,
        "shortShare": score.short_share,
        "givenUpShare": score.given_up_share,
        "waitP50Seconds": score.wait_p50_s,
        "waitP95Seconds": score.wait_p95_s,
        "waitP99Seconds": score.wait_p99_s,
        "withinShare": score.within_share,
        "changes": score.events,
    }


def text_of(answer: TuningResult) -> str:
    """Return the result as text, within the terminal's width."""
    from gpuscale.base.pages.columns import fitted

    workload, split, limits = answer.workload, answer.split, answer.limits
    nodes = workload.nodes
    bounds = (
        (f"{limits.static_replicas} standing still", limits.static_hours),
        ("best simple rule in hindsight", limits.simple_rule_hours),
        ("oracle", limits.oracle_hours),
    )
    cells = [
        ("", *_HEADINGS),
        *(_cells(row, nodes.currency) for row in answer.rows),
        *((name, f"{hours * nodes.gpus_per_replica:,.1f}", *[""] * 6) for name, hours in bounds),
    ]
    columns = [*range(1, len(_HEADINGS) + 1)]
    if nodes.price_per_hour is None:
        columns.remove(_COST)
    columns.sort(key=_IMPORTANCE.index)
    width = shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns
    scored_days = workload.days - split.first_scored * workload.service.step_s / DAY_S
    searched_days = split.searched * workload.service.step_s / DAY_S
    days = (
        f"Searched on {searched_days:.3g} days, scored on the {scored_days:.3g} after that."
        if split.is_held_back
        else "Searched and scored on the same steps."
    )
    parts = [
        *wrap(
            f"{workload.name}: {length_text(workload.days)} of demand, {workload.service.start_up_s:g} s from"
            f" order to ready. {days}",
            width,
        ),
        "",
        *fitted(cells, width, columns, len(columns) - 1),
        "",
        *_offers_text(answer.offered, answer.promise, width),
        *_nodes_text(answer.pooled, nodes.currency, width),
        *(
            line
            for row in (*answer.rows, *(answer.pooled.rows[-1:] if answer.pooled else ()))
            for line in wrap(
                f"{row.name}: {', '.join(f'{name} {value:g}' for name, value in row.settings.items())}",
                width,
                subsequent_indent="  ",
            )
        ),
        "",
    ]
    said: list[str] = list(answer.document["said"])  # type: ignore[call-overload]
    if not answer.document["isWhole"]:
        said.append("The search was stopped before its end; this is the best until then.")
    return "\n".join([*parts, *(line for each in said for line in wrap(each, width))])


def _offers_text(offered: Sequence[Offer], promise: Promise, width: int) -> list[str]:
    """Return the cost of stricter and looser promises, a line each; empty if there is no choice."""
    from gpuscale.base.pages.columns import fitted

    names = list(dict.fromkeys(each.row.name for each in offered))
    by_share: dict[float, dict[str, ScoredPolicy]] = {}
    for each in offered:
        by_share.setdefault(each.share, {})[each.row.name] = each.row
    if len(by_share) < 2:
        return []
    cells = [("promise", *(part for name in names for part in (name, "was")))]
    for share in sorted(by_share):
        rows = (by_share[share].get(name) for name in names)
        figures = (
            ("-", "-")
            if row is None
            else (f"{row.score.gpu_hours:,.1f}", promise.figures(row.score.missed))
            for row in rows
        )
        cells.append((str(promise.scaled(share)), *(part for pair in figures for part in pair)))
    columns = range(1, len(cells[0]))
    return ["GPU-hours by what is promised:", "", *fitted(cells, width, columns, 0), ""]


def _nodes_text(pooled: Pooled | None, currency: str, width: int) -> list[str]:
    """Return the outcome on the pool's nodes; empty if they were not searched."""
    from gpuscale.base.pages.columns import fitted

    if pooled is None:
        return []
    cells = [("", "node-hours", "cost", "short", "changes")]
    for row in pooled.rows:
        score = row.score
        cost = "-" if score.cost is None else f"{score.cost:,.2f} {currency}"
        hours, short = f"{score.node_hours:,.1f}", percent_text(score.short_share)
        cells.append((row.name, hours, cost, short, f"{score.events:,}"))
    columns = [1, 3, 2, 4] if pooled.rows[0].score.cost is not None else [1, 3, 4]
    head = f"On nodes of the pool {pooled.pool.name}, where a pod on a node that is there starts sooner:"
    return [*wrap(head, width), "", *fitted(cells, width, columns, 0), ""]


def _cells(row: ScoredPolicy, currency: str) -> tuple[str, ...]:
    score = row.score
    return (
        row.name,
        f"{score.gpu_hours:,.1f}",
        "-" if score.cost is None else f"{score.cost:,.2f} {currency}",
        percent_text(score.short_share),
        f"{score.wait_p95_s:.2g} s",
        f"{score.wait_p99_s:.2g} s",
        percent_text(score.within_share),
        f"{score.events:,}",
    )
