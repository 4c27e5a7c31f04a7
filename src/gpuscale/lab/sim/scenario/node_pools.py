"""A scenario's node pools, with the GPUs of their nodes."""

from gpuscale.agent.gpu import MODELS, PCIE_4, GpuModel, expected_models, find_model
from gpuscale.base.documents.documents import Path
from gpuscale.base.objects.nodes import Taint
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.hpa.cluster.nodes import InstanceType, NodePool, Offering
from gpuscale.lab.sim.control.cloud import CloudPool
from gpuscale.lab.sim.scenario import model as spec
from gpuscale.lab.sim.scenario.references import References
from gpuscale.lab.sim.scenario.times import times_of


def read_pools(run: spec.ScenarioSpec, references: References) -> tuple[CloudPool, ...]:
    """Return the pools; faults are collected."""
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
        found = find_model(pool.gpu_model, models)
        if found is None:
            expected = expected_models(pool.gpu_model, models)
            is_list = expected.startswith("one of")
            fix = "others can be described in spec.gpuModels" if is_list else None
            references.note((*path, "gpuModel"), expected, found=repr(pool.gpu_model), fix=fix)
        pools.append(_pool(pool, found or models[0], path, references))
    return tuple(pools)


def read_currency(run: spec.ScenarioSpec, references: References) -> str:
    """Return the one currency of the pools' prices."""
    priced = [
        (index, pool.currency)
        for index, pool in enumerate(run.node_pools)
        if pool.price_per_hour is not None
    ]
    currency = priced[0][1] if priced else run.node_pools[0].currency
    for index, other in priced:
        if other != currency:
            path: Path = ("nodePools", index, "currency")
            expected = f"{currency}, as the other prices: costs are added up"
            references.note(path, expected, found=repr(other))
    return currency


def _pool(
    pool: spec.NodePoolSpec, model: GpuModel, path: Path, references: References
) -> CloudPool:
    allocatable = {
        "cpu": _quantity(pool.cpu, (*path, "cpu"), references),
        "memory": _quantity(pool.memory, (*path, "memory"), references),
        "pods": parse_quantity(110),
        model.resource: parse_quantity(pool.gpus),
    }
    labels = {"node.kubernetes.io/instance-type": pool.instance_type} if pool.instance_type else {}
    offering = Offering(price_per_hour=pool.price_per_hour)
    shape = InstanceType(pool.instance_type, allocatable, labels=labels, offerings=(offering,))
    taints = tuple(Taint(taint.key, taint.value, taint.effect) for taint in pool.taints)
    return CloudPool(
        NodePool(pool.name, pool.min, pool.max, (shape,), dict(pool.labels), taints),
        model,
        pool.gpus,
        times_of(pool.provisioning_time),
        pool.price_per_hour,
        pool.provider.name,
    )


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
