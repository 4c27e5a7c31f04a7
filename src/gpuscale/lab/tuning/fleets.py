"""Several workloads of a scenario tuned together, on the node pools that they share."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

from gpuscale.base.errors import UsageError
from gpuscale.base.words import counted
from gpuscale.lab.plan.bounds import fewest_standing
from gpuscale.lab.plan.choosing import choose
from gpuscale.lab.plan.comparing import (
    ReplayedWorkload,
    ScoredPolicy,
    Split,
    length_text,
    question_of,
    row_of,
    split_of,
)
from gpuscale.lab.plan.fleet.fleet import FleetPool, FleetService
from gpuscale.lab.plan.together import (
    FleetMember,
    FleetSearch,
    SharedFleet,
    SharedPool,
    ladder_of,
)
from gpuscale.lab.plan.tuning.contender import Contender, rounded
from gpuscale.lab.plan.tuning.pooled import DELAY, MIN_NODES, UNNEEDED, nodes_of
from gpuscale.lab.plan.tuning.search import DAY_S, Each, Search
from gpuscale.lab.plan.tuning.workers import workers
from gpuscale.lab.sim.control.machines import CloudPool
from gpuscale.lab.sim.fluid.run import check_fluid, fleet_pool, node_share
from gpuscale.lab.sim.scenario.setup import ServiceSetup, Setup
from gpuscale.lab.tuning.answers import TuningRequest
from gpuscale.lab.tuning.asking import Progress, unseen
from gpuscale.lab.tuning.autoscaler import TARGET, TunedHpa
from gpuscale.lab.tuning.inputs import Overrides, chosen_workload, of_setup
from gpuscale.lab.tuning.pools import has_scale_down_times, home_of, is_growing
from gpuscale.triggers.policies import STATIC, Numbers, Parameter

_PIPED_WIDTH = 100
RESERVED = "reserved"
_LOWER_TARGETS = (0.85, 0.7, 0.5)
"""Stricter rungs, for days that are worse than those searched: times the target that was found."""
OF_NODES = (MIN_NODES, UNNEEDED, DELAY)


@dataclass(frozen=True, slots=True)
class FleetWorkload:
    """A workload of a fleet, and its HPA; None where it has none."""

    workload: ReplayedWorkload
    autoscaler: TunedHpa | None
    is_tuned: bool
    place: FleetService
    has_node_to_come: bool
    """Whether a pod may have to wait for a new node."""


@dataclass(frozen=True, slots=True)
class FleetInput:
    """A scenario whose workloads are tuned together."""

    name: str
    workloads: tuple[FleetWorkload, ...]
    pools: tuple[SharedPool, ...]
    currency: str
    has_times: bool


@dataclass(frozen=True, slots=True)
class FleetRow:
    """Settings of the whole fleet, scored."""

    name: str
    title: str
    settings: Sequence[Numbers]
    """Of each workload."""
    pools: Sequence[FleetPool]
    node_hours: Sequence[float]
    """Of each pool."""
    bill: float
    """In money beyond what is reserved; node GPU-hours without prices."""
    gpu_hours: Sequence[float]
    """Of each workload."""
    missed: Sequence[tuple[float, ...]]
    used: Sequence[float]
    """Of each workload's promise, on the scored days; beyond 1 it is broken."""

    @property
    def is_kept(self) -> bool:
        """Return whether all workloads that are tuned keep their promise."""
        return max(self.used) <= 1


@dataclass(frozen=True, slots=True)
class FleetResult:
    """The result for a fleet."""

    document: dict[str, Any]
    found: FleetInput
    fleet: SharedFleet
    taken: FleetRow
    is_gain: bool

    def values(self, index: int) -> dict[str, float]:
        """Return a workload's tuned settings by name."""
        return self.fleet.members[index].contender.named(self.taken.settings[index])


def of_fleet(setup: Setup, name: str, workloads: Sequence[str], given: Overrides) -> FleetInput:
    """Return the workloads of a scenario that are tuned together, with all others on their pools.

    Args:
        setup: the scenario, resolved.
        name: what messages call it.
        workloads: which of its Deployments are tuned; empty for all that have an HPA.
        given: what options say.

    Raises:
        UsageError: it has no such workload, or what can't be replayed as a fleet.
    """
    check_fluid(setup, "several workloads", with_reservations=True)
    if options := given.of_pods():
        raise UsageError(f"{options[0]}: found several workloads, expected one")
    chosen = [chosen_workload(setup, name, each).deployment for each in workloads]
    found = [_workload(setup, name, each, given, chosen) for each in setup.workloads]
    if not any(each.is_tuned for each in found):
        raise UsageError(
            f"{name}: found no HPA of {', '.join(chosen) or 'a workload'}, expected one"
        )
    names = {each.place.pool for each in found}
    pools = [each for each in setup.pools if each.pool.name in names]
    return FleetInput(
        setup.name,
        tuple(found),
        tuple(_shared(setup, each) for each in pools),
        setup.currency,
        all(map(has_scale_down_times, pools)),
    )


def _shared(setup: Setup, pool: CloudPool) -> SharedPool:
    """Return a pool with its reserved nodes, and the price of those beyond them."""
    offered = [each for each in pool.machine.shape.offerings if each.capacity_type != RESERVED]
    price = offered[0].price_per_hour if offered else pool.price_per_hour
    reserved = sum(each.count for each in pool.supply.reservations)
    return SharedPool(fleet_pool(setup, pool), price, reserved)


def _workload(
    setup: Setup, name: str, one: ServiceSetup, given: Overrides, chosen: Sequence[str]
) -> FleetWorkload:
    workload, autoscaler = of_setup(setup, name, one.deployment, None, given)
    deployment = next(each for each in setup.deployments if each.metadata.key == one.deployment)
    pool = home_of(setup, one)
    place = FleetService(
        one.deployment,
        pool.pool.name,
        STATIC,
        STATIC.settings(),
        deployment.replicas,
        gpus=one.model.gpus,
        share=node_share(pool, deployment),
        start_up_s=(one.lifecycle.image_pull_ms + one.lifecycle.startup_ms) / 1000,
    )
    has_hpa = autoscaler.hpa is not None
    return FleetWorkload(
        workload,
        autoscaler if has_hpa else None,
        has_hpa and (not chosen or one.deployment in chosen),
        place,
        is_growing(pool),
    )


def answer_together(
    found: FleetInput, asked: TuningRequest, progress: Progress = unseen
) -> FleetResult:
    """Tune each workload on its own, then all together, and return the result.

    Raises:
        UsageError: no number of pods keeps the promise, or a setting to keep is unknown.
    """
    split = split_of(found.workloads[0].workload, asked.held_back)
    with progress("tuning") as say, workers(asked.on, asked.workers) as each:
        members = []
        for number, one in enumerate(found.workloads, 1):
            say(f"{one.workload.name}: {number} of {counted(len(found.workloads), 'workload')}")
            members.append(_member(one, split, asked, each))
        kept = asked.kept if asked.has_nodes else OF_NODES
        fleet = SharedFleet(
            tuple(members), found.pools, asked.promise, found.has_times, tuple(kept)
        )
        search = FleetSearch(
            fleet, split.searched, asked.seed, each, is_held_back=split.is_held_back
        )
        tried, is_whole = 0, True
        try:
            for count in search.run():
                tried += count
                say(f"together: {tried} settings of the fleet tried")
        except KeyboardInterrupt:
            is_whole = False
    pools = [each.nodes for each in found.pools]
    settings = [each.contender.today for each in members]
    today = _row("today", "as it is", fleet, settings, pools, split)
    settings = fleet.settings(fleet.begin())
    alone = _row("each alone", "each HPA tuned on its own", fleet, settings, pools, split)
    together, tightened = _holding(fleet, search.best.values, split)
    taken = min(
        (row for row in (together, alone) if row.is_kept),
        key=lambda row: row.bill,
        default=together,
    )
    is_gain = taken.is_kept and (not today.is_kept or taken.bill < today.bill)
    said = list(_said(fleet, split, today, alone, taken, tightened, is_gain=is_gain))
    rows = [today, alone, together]
    document = _document(found, fleet, split, asked, rows, said, is_gain=is_gain, is_whole=is_whole)
    return FleetResult(document, found, fleet, taken, is_gain)


def _member(one: FleetWorkload, split: Split, asked: TuningRequest, each: Each) -> FleetMember:
    """Return a workload with its ladder: from a search as of one workload, and one on warm nodes."""
    workload = one.workload
    if one.autoscaler is None:
        count = float(one.place.most)
        workload = replace(workload, service=workload.service._replace(least=count, most=count))
        fixed = Contender(replace(STATIC, parameters=(Parameter("replicas", count, count, count),)))
        return FleetMember(workload, fixed, one.place, (fixed.today,), is_tuned=False)
    question = question_of(workload, split, asked.promise, asked.seed)
    static = int(
        fewest_standing(question.demand, workload.service, asked.promise, workload.requests)
    )
    peak = float(question.demand.max())
    # Of an HPA what matters most is searched: with many, the rest would cost hours for little.
    whole = one.autoscaler.contender(workload.service, static, peak)
    names = [each.name for each in whole.parameters]
    if unknown := [name for name in asked.kept if name not in (*names, *OF_NODES)]:
        expected = ", ".join((*names, *OF_NODES))
        raise UsageError(f"--keep: found {unknown[0]!r}, expected of: {expected}")
    minor = [name for name in names if name not in whole.first]
    contender = whole.keeping([*minor, *asked.kept])
    if not one.is_tuned:
        return FleetMember(workload, contender, one.place, (contender.today,), is_tuned=False)
    search = Search(question, contender, each)
    for _ in search.run(asked.tries):
        pass

    def scored(values: Numbers) -> ScoredPolicy:
        return row_of(workload, split, contender, values, asked.promise, "", "")

    choice = choose(
        search,
        contender,
        asked.promise,
        scored(contender.today),
        scored,
        lambda row: row.score.gpu_hours,
        {TARGET: one.autoscaler.full},
    )
    own = choice.taken.values if choice.is_gain else contender.today
    warm = search
    if one.has_node_to_come:
        service = workload.service._replace(start_up_s=one.place.start_up_s)
        warm = Search(replace(question, service=service), contender, each, begin=[own])
        for _ in warm.run(asked.tries):
            pass
    stricter = [line.values for line in choice.offers if line.share <= 1]
    at = [each.name for each in contender.parameters].index(TARGET)
    for share in _LOWER_TARGETS:
        values = own.copy()
        values[at] = rounded(contender.parameters[at], share * values[at])
        stricter.append(values)
    ladder, begin = ladder_of(warm, own, [contender.today, *stricter])
    return FleetMember(workload, contender, one.place, ladder, begin)


def _row(
    name: str,
    title: str,
    fleet: SharedFleet,
    settings: Sequence[Numbers],
    pools: Sequence[FleetPool],
    split: Split,
) -> FleetRow:
    """Replay all days, and score the last ones."""
    run = fleet.replay(settings, pools, fleet.demand())
    first, hours = split.first_scored, fleet.step_s / 3600
    replayed = fleet.replayed(run)
    missed = [
        fleet.promise.missed_shares(one, each.workload.requests, first)
        for one, each in zip(replayed, fleet.members, strict=True)
    ]
    return FleetRow(
        name,
        title,
        settings,
        pools,
        [float(nodes_of(run, at)[first:].sum()) * hours for at in range(len(pools))],
        fleet.bill(run, first),
        [
            float(one.replicas[first:].sum()) * hours * each.place.gpus
            for one, each in zip(replayed, fleet.members, strict=True)
        ],
        missed,
        [
            fleet.promise.used(shares) if each.is_tuned else 0.0
            for shares, each in zip(missed, fleet.members, strict=True)
        ],
    )


def _holding(fleet: SharedFleet, values: Numbers, split: Split) -> tuple[FleetRow, set[int]]:
    """Return the row of values, and the workloads that climbed up since they broke on the scored days."""
    tightened: set[int] = set()
    while True:
        row = _row(
            "together",
            "HPAs and node pools, tuned together",
            fleet,
            fleet.settings(values),
            fleet.pools_with(values),
            split,
        )
        broken = [at for at, used in enumerate(row.used) if used > 1 and values[at] > 0]
        if not broken:
            return row, tightened
        values = values.copy()
        values[broken] -= 1
        tightened.update(broken)


def _said(
    fleet: SharedFleet,
    split: Split,
    today: FleetRow,
    alone: FleetRow,
    taken: FleetRow,
    tightened: set[int],
    *,
    is_gain: bool,
) -> Iterator[str]:
    if not split.is_held_back:
        yield (
            "There are too few days to hold some back: the settings were chosen on what they are scored on,"
            " and may not do for other days. Give two days or more."
        )
    broken = [
        f"{each.workload.name} ({fleet.promise.figures(taken.missed[at])})"
        for at, each in enumerate(fleet.members)
        if taken.used[at] > 1
    ]
    if broken:
        yield (
            f"Nothing to gain: with no settings that were found does {', '.join(broken)} keep {fleet.promise}"
            " on the scored days."
        )
    elif not is_gain:
        yield "Nothing to gain: what is set today keeps the promises, and nothing that held costs less."
    if tightened:
        names = ", ".join(fleet.members[at].workload.name for at in sorted(tightened))
        yield f"Stricter settings than the searched days ask for, since they did not hold: {names}."
    if is_gain and taken is alone:
        yield "Tuned together, nothing that held costs less than each HPA tuned on its own."
    before, own, after = (sum(each.node_hours) for each in (today, alone, taken))
    if is_gain and before:
        yield (
            f"{1 - after / before:.1%} of the node-hours are saved; by each HPA tuned on its own,"
            f" {1 - own / before:.1%}."
        )


def _document(
    found: FleetInput,
    fleet: SharedFleet,
    split: Split,
    asked: TuningRequest,
    rows: Sequence[FleetRow],
    said: Sequence[str],
    *,
    is_gain: bool,
    is_whole: bool,
) -> dict[str, Any]:
    step_days = fleet.step_s / DAY_S
    steps = len(fleet.members[0].workload.demand)
    return {
        "scenario": found.name,
        "days": steps * step_days,
        "searchedDays": split.searched * step_days,
        "scoredDays": (steps - split.first_scored) * step_days,
        "isHeldBack": split.is_held_back,
        "isWhole": is_whole,
        "isGain": is_gain,
        "promise": [str(each) for each in asked.promise.terms],
        "rows": [_row_document(found, fleet, row) for row in rows],
        "said": list(said),
    }


def _row_document(found: FleetInput, fleet: SharedFleet, row: FleetRow) -> dict[str, Any]:
    has_prices = all(each.price_per_hour is not None for each in found.pools)
    return {
        "name": row.name,
        "title": row.title,
        "isKept": row.is_kept,
        "nodeHours": sum(row.node_hours),
        **({"cost": row.bill, "currency": found.currency} if has_prices else {}),
        "nodePools": [
            {
                "name": pool.name,
                "nodeHours": hours,
                "min": pool.least,
                "unneededSeconds": pool.unneeded_s,
                "delayAfterAddSeconds": pool.delay_after_add_s,
            }
            for pool, hours in zip(row.pools, row.node_hours, strict=True)
        ],
        "workloads": [
            {
                "name": each.workload.name,
                "isTuned": each.is_tuned,
                "isKept": row.used[at] <= 1,
                "kept": fleet.promise.figures(row.missed[at]),
                "gpuHours": row.gpu_hours[at],
                "settings": each.contender.named(row.settings[at]),
            }
            for at, each in enumerate(fleet.members)
        ],
    }


def fleet_text(result: FleetResult) -> str:
    """Return the result as text, within the terminal's width."""
    from gpuscale.base.pages.columns import fitted

    document = result.document
    width = shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns
    rows = document["rows"]
    today, _, together = rows
    tuned = [each["name"] for each in today["workloads"] if each["isTuned"]]
    days = (
        f"Searched on {document['searchedDays']:.3g} days, scored on the {document['scoredDays']:.3g}"
        " after that."
        if document["isHeldBack"]
        else "Searched and scored on the same steps."
    )
    head = (
        f"{document['scenario']}: {length_text(document['days'])} of demand of"
        f" {counted(len(today['workloads']), 'workload')} on"
        f" {counted(len(today['nodePools']), 'node pool')}. {days}"
    )
    table = [("", "node-hours", "cost", f"keep {', '.join(document['promise'])}")]
    for row in rows:
        kept = sum(each["isKept"] for each in row["workloads"] if each["isTuned"])
        cost = f"{row['cost']:,.2f} {row['currency']}" if "cost" in row else "-"
        hours = f"{row['nodeHours']:,.1f}"
        table.append((row["name"], hours, cost, f"{kept} of {len(tuned)}"))
    by_pool = [("node pool", "node-hours", "was", "min", "was", "unneeded", "was", "delay", "was")]
    by_pool += [
        (
            *(new["name"], f"{new['nodeHours']:,.1f}", f"{old['nodeHours']:,.1f}"),
            *(f"{new['min']}", f"{old['min']}"),
            *(f"{each['unneededSeconds'] / 60:g} min" for each in (new, old)),
            *(f"{each['delayAfterAddSeconds'] / 60:g} min" for each in (new, old)),
        )
        for new, old in zip(together["nodePools"], today["nodePools"], strict=True)
    ]
    by_workload = [("workload", "GPU-hours", "was", "kept", "was")]
    by_workload += [
        (
            *(new["name"], f"{new['gpuHours']:,.1f}", f"{old['gpuHours']:,.1f}"),
            *(new["kept"], old["kept"]),
        )
        for new, old in zip(together["workloads"], today["workloads"], strict=True)
    ]
    lines = [*wrap(head, width), ""]
    for cells in (table, by_pool, by_workload):
        lines += [*fitted(cells, width, range(1, len(cells[0])), 0), ""]
    for new, old in zip(together["workloads"], today["workloads"], strict=True):
        changed = [
            f"{name} {value:g} (was {old['settings'][name]:g})"
            for name, value in new["settings"].items()
            if value != old["settings"][name]
        ]
        if changed:
            text = f"{new['name']}: {', '.join(changed)}"
            lines += wrap(text, width, subsequent_indent="  ")
    said = list(document["said"])
    if not document["isWhole"]:
        said.append("The search was stopped before its end; this is the best until then.")
    return "\n".join([*lines, "", *(line for each in said for line in wrap(each, width))])
