"""A scenario's node pools, with the GPUs of their nodes."""

from collections.abc import Iterator, Mapping, Sequence

from gpuscale.agent.gpu import MODELS, PCIE_4, GpuModel, expected_models, find_model
from gpuscale.base.documents.documents import Path
from gpuscale.base.objects.devices import DeviceClasses
from gpuscale.base.objects.selectors import Operator, Requirement
from gpuscale.base.objects.taints import Taint
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.hpa.cluster.nodes import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    Disruption,
    DisruptionBudget,
    InstanceType,
    NodePool,
    Offering,
)
from gpuscale.lab.sim.control.machines import CloudPool, Machine
from gpuscale.lab.sim.control.supply import Reservation, StockOut, Supply
from gpuscale.lab.sim.scenario import model as spec
from gpuscale.lab.sim.scenario.devices import gpus_of_devices, read_slices
from gpuscale.lab.sim.scenario.pool_model import InstanceTypeSpec, NodePoolSpec
from gpuscale.lab.sim.scenario.references import References
from gpuscale.lab.sim.scenario.times import times_of


def read_pools(
    run: spec.ScenarioSpec, classes: DeviceClasses | None, references: References
) -> tuple[CloudPool, ...]:
    """Return the pools; faults are collected.

    Args:
        run: the scenario's `spec`.
        classes: of devices for claims; None where nothing is known of these.
        references: collects faults.
    """
    described = tuple(map(_described_model, run.gpu_models))
    for index, model in enumerate(described):
        if find_model(model.name, described[:index]) is not None:
            where: Path = ("gpuModels", index, "name")
            references.note(where, "each model's name once", found=repr(model.name))
    models = (*described, *MODELS.values())
    pools: list[CloudPool] = []
    seen: set[str] = set()
    for index, pool in enumerate(run.node_pools):
        path: Path = ("nodePools", index)
        if pool.name in seen:
            references.note((*path, "name"), "each pool's name once", found=repr(pool.name))
        seen.add(pool.name)
        machines = tuple(_machines(pool, path, models, classes, references))
        names = {each.shape.name for each in machines}
        if len(names) < len(machines):
            references.note((*path, "instanceTypes"), "each instance type's name once")
        for number, stock_out in enumerate(pool.stock_outs):
            if not names.issuperset(stock_out.instance_types):
                where = (*path, "stockOuts", number, "instanceTypes")
                found = ", ".join(sorted({*stock_out.instance_types} - names))
                references.note(where, f"some of {', '.join(sorted(names))}", found=found)
        pools.append(_pool(pool, machines, path, references))
    return tuple(pools)


def read_currency(run: spec.ScenarioSpec, references: References) -> str:
    """Return the one currency of the pools' prices."""
    priced = [
        (index, pool.currency)
        for index, pool in enumerate(run.node_pools)
        if pool.price_per_hour is not None or pool.instance_types
    ]
    currency = priced[0][1] if priced else run.node_pools[0].currency
    for index, other in priced:
        if other != currency:
            path: Path = ("nodePools", index, "currency")
            expected = f"{currency}, as the other prices: costs are added up"
            references.note(path, expected, found=repr(other))
    return currency


def _machines(
    pool: NodePoolSpec,
    path: Path,
    models: Sequence[GpuModel],
    classes: DeviceClasses | None,
    references: References,
) -> Iterator[Machine]:
    gpu_start = times_of(pool.gpu_start_time)
    if not pool.instance_types:
        labels = {INSTANCE_TYPE: pool.instance_type} if pool.instance_type else {}
        gpus = pool.gpus or 0
        model = _model(pool.gpu_model, path, models, references)
        offers = _offers(pool, model, path, references)
        offered = _allocatable(pool, gpus, offers, path, references)
        labels |= _sharing_labels(pool)
        offering = Offering(price_per_hour=pool.price_per_hour)
        slices = read_slices(pool, path, references)
        shape = InstanceType(
            pool.instance_type or pool.name,
            offered,
            labels=labels,
            offerings=(offering,),
            slices=slices,
            classes=classes,
        )
        gpu_of = gpus_of_devices(slices, gpus, path, references)
        coming = times_of(pool.provisioning_time)
        yield Machine(shape, model, gpus, coming, gpu_start, offers, gpu_of)
    for index, each in enumerate(pool.instance_types):
        where = (*path, "instanceTypes", index)
        gpus = each.gpus or 0
        model = _model(each.gpu_model, where, models, references)
        offers = _offers(pool, model, where, references)
        offered = _allocatable(each, gpus, offers, where, references)
        offerings = tuple(
            Offering(o.zone, o.capacity_type, o.price_per_hour) for o in each.offerings
        )
        labels = {INSTANCE_TYPE: each.name, **each.labels}
        labels |= _sharing_labels(pool)
        shape = InstanceType(
            each.name, offered, labels=labels, offerings=offerings, classes=classes
        )
        own = each.provisioning_time
        coming = times_of(pool.provisioning_time if own is None else own)
        yield Machine(shape, model, gpus, coming, gpu_start, offers)


def _model(name: str, path: Path, models: Sequence[GpuModel], references: References) -> GpuModel:
    found = find_model(name, models)
    if found is None and name:  # one without a name was noted
        expected = expected_models(name, models)
        fix = "others can be described in spec.gpuModels" if expected.startswith("one of") else None
        references.note((*path, "gpuModel"), expected, found=repr(name), fix=fix)
    return found or models[0]


def _allocatable(
    described: NodePoolSpec | InstanceTypeSpec,
    gpus: int,
    offers: Mapping[str, int],
    path: Path,
    references: References,
) -> dict[str, Quantity]:
    return {
        "cpu": _quantity(described.cpu, (*path, "cpu"), references),
        "memory": _quantity(described.memory, (*path, "memory"), references),
        "pods": parse_quantity(getattr(described, "pods", 110)),
        **{name: parse_quantity(gpus * units) for name, units in offers.items()},
    }


def _offers(
    pool: NodePoolSpec, model: GpuModel, path: Path, references: References
) -> dict[str, int]:
    """Return how many units of which resource a device plugin offers for one GPU.

    Source: NVIDIA k8s-device-plugin 0.20, README (shared access to GPUs), MIG strategy mixed.
    """
    if pool.resource_slices:
        return {}
    if pool.mig:
        slices = sum(int(profile[0]) * count for profile, count in pool.mig.items())
        if slices > model.mig_slices:
            most = f"instances of at most {model.mig_slices} slices in all"
            expected = most if model.mig_slices else "a GPU model with MIG"
            found = f"{model.name} in {slices} slices"
            references.note((*path[:2], "mig"), expected, found=found)
        named = {profile.replace("+", "."): count for profile, count in pool.mig.items()}
        return {f"nvidia.com/mig-{profile}": count for profile, count in named.items()}
    if pool.sharing:
        if model.vendor != "NVIDIA":
            expected = "a GPU of NVIDIA, whose device plugin shares it"
            references.note((*path[:2], "sharing"), expected, found=model.name)
        suffix = ".shared" if pool.sharing.renamed else ""
        return {f"{model.resource}{suffix}": pool.sharing.replicas}
    return {model.resource: 1}


def _sharing_labels(pool: NodePoolSpec) -> dict[str, str]:
    """Return the labels by which NVIDIA's feature discovery tells how GPUs are shared."""
    if pool.sharing is None:
        return {}
    return {
        "nvidia.com/gpu.replicas": str(pool.sharing.replicas),
        "nvidia.com/gpu.sharing-strategy": pool.sharing.strategy,
    }


def _pool(
    pool: NodePoolSpec, machines: tuple[Machine, ...], path: Path, references: References
) -> CloudPool:
    disruption = pool.disruption
    after = disruption.consolidate_after
    budgets = tuple(
        DisruptionBudget(each.nodes, each.reasons, each.schedule, each.duration)
        for each in disruption.budgets
    )
    limits = {
        name: _quantity(text, (*path, "limits", name), references)
        for name, text in pool.limits.items()
    }
    node_pool = NodePool(
        pool.name,
        pool.min,
        pool.max,
        tuple(each.shape for each in machines),
        dict(pool.labels),
        tuple(Taint(taint.key, taint.value, taint.effect) for taint in pool.taints),
        requirements=_requirements(machines),
        weight=pool.weight,
        limits=limits,
        disruption=Disruption(
            disruption.consolidation_policy,
            None if isinstance(after, str) else after,
            budgets,
            None if isinstance(pool.expire_after, str) else pool.expire_after,
        ),
    )
    taken = pool.interruptions
    supply = Supply(
        tuple(
            StockOut(
                each.start,
                times_of(each.length),
                None if each.every is None else times_of(each.every),
                each.instance_types,
                each.zones,
                each.capacity_types,
                each.code,
            )
            for each in pool.stock_outs
        ),
        tuple(
            Reservation(
                kind.name,
                Offering(each.zone, each.capacity_type, each.price_per_hour),
                each.count,
                each.start,
                each.end,
            )
            for kind in pool.instance_types
            for each in kind.offerings
            if each.count is not None
        ),
        pool.quota_gpus,
        None if taken is None else times_of(taken.after),
        120_000 if taken is None else taken.notice,
    )
    return CloudPool(node_pool, machines, pool.provider.name, supply, pool.initial or 0)


def _requirements(machines: tuple[Machine, ...]) -> tuple[Requirement, ...]:
    """Return that the pool wants nothing but the capacity types that it says how to have."""
    sold = {o.capacity_type for each in machines for o in each.shape.offerings} - {""}
    if not sold:
        return ()
    return (Requirement(CAPACITY_TYPE, Operator.IN, tuple(sorted(sold))),)


def _quantity(text: str, path: Path, references: References) -> Quantity:
    try:
        return parse_quantity(text)
    except ValueError as error:
        references.note(path, str(error), found=repr(text))
        return Quantity(0)


def _described_model(model: spec.GpuModelSpec) -> GpuModel:
    """Return a described GPU model; what the scenario omits is typical of a server's card."""
    memory_mib = round(model.memory_gib * 1024)
    idle_w = model.power_watts / 10 if model.idle_watts is None else model.idle_watts
    return GpuModel(
        name=model.name,
        vendor=model.vendor,
        memory_mib=memory_mib,
        reserved_mib=memory_mib // 100 if model.vendor == "NVIDIA" else 0,
        idle_power_w=idle_w,
        max_power_w=model.power_watts,
        idle_sm_clock_mhz=min(210, model.sm_clock_mhz),
        max_sm_clock_mhz=model.sm_clock_mhz,
        idle_memory_clock_mhz=min(405, model.memory_clock_mhz),
        memory_clock_mhz=model.memory_clock_mhz,
        idle_temp_c=32,
        max_temp_c=75,
        thermal_time_constant_s=45,
        pcie_bytes_per_s=PCIE_4,
        has_profiling=model.vendor == "NVIDIA",
        has_row_remapping=model.vendor == "NVIDIA",
    )
