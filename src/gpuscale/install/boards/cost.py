"""The dashboard of cost: what GPUs cost, and for what part of it nothing was done."""

from gpuscale.install.boards.model import (
    GPU_LABELS,
    Board,
    BoardSettings,
    LabelVariable,
    Panel,
    Query,
    Row,
    TextVariable,
    Threshold,
    busy,
)
from gpuscale.install.series_names import GPU_RESOURCES, SeriesNames

_NODE = 'Hostname=~"$node"'
_GPUS = f"count(DCGM_FI_DEV_GPU_TEMP{{{_NODE}}})"
_STEPS_PER_HOUR = 120
_STEP = "30s"
"""Of sums over the chosen time; `_STEPS_PER_HOUR` of them are an hour."""
_MJ_PER_KWH = "3.6e9"


def cost_board(settings: BoardSettings) -> Board:
    """Return the dashboard of cost and idle GPUs."""
    return Board(
        uid="gpuscale-cost",
        title="gpuscale / Cost and idle GPUs",
        description="What GPUs cost at one price per GPU-hour, and for what part of it nothing was done.",
        variables=(
            LabelVariable("node", "Node", "DCGM_FI_DEV_GPU_TEMP", "Hostname"),
            TextVariable(
                "price", f"{settings.currency} per GPU-hour", f"{settings.gpu_hour_price:g}"
            ),
            TextVariable("idle", "Idle below, %", "5"),
        ),
        rows=(
            Row("Now", _now(settings)),
            Row("In the chosen time", _over_time(settings)),
            Row("Where it goes", _where(settings)),
            Row("Which GPUs are idle", _idle(settings.names)),
        ),
    )


def _idle_count() -> str:
    """Return the query of how many GPUs do less than the threshold: 0, and not nothing, if all are busy."""
    return f"count({busy(_NODE)} < $idle) or 0 * {_GPUS}"


def _hours(counted: str) -> str:
    """Return the query of the GPU-hours in the chosen time; time without readings counts for nothing."""
    return f"sum_over_time(({counted})[$__range:{_STEP}]) / {_STEPS_PER_HOUR}"


def _money(settings: BoardSettings) -> str:
    return f"currency{settings.currency}"


def _stat(title: str, expr: str, unit: str, text: str = "") -> Panel:
    return Panel(title, (Query(expr),), unit, text, kind="stat", width=6, height=4)


def _now(settings: BoardSettings) -> tuple[Panel, ...]:
    return (
        _stat("GPUs", _GPUS, "short"),
        _stat("Cost per hour", f"{_GPUS} * $price", _money(settings)),
        _stat("Idle GPUs", _idle_count(), "short"),
        _stat("Cost per hour of idle GPUs", f"({_idle_count()}) * $price", _money(settings)),
    )


def _over_time(settings: BoardSettings) -> tuple[Panel, ...]:
    energy = f"sum(increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{_NODE}}}[$__range]))"
    return (
        _stat("GPU-hours", _hours(_GPUS), "short"),
        _stat("Cost", f"{_hours(_GPUS)} * $price", _money(settings)),
        _stat(
            "Cost of idle time",
            f"{_hours(_idle_count())} * $price",
            _money(settings),
            "GPUs are looked at every half minute.",
        ),
        _stat("Energy", f"{energy} / {_MJ_PER_KWH}", "kwatth"),
        Panel(
            "Cost per hour over time",
            (
                Query(f"{_GPUS} * $price", "all GPUs"),
                Query(f"({_idle_count()}) * $price", "idle GPUs"),
            ),
            _money(settings),
            at_least=0,
            has_steps=True,
        ),
        Panel(
            "Used part of what is paid for",
            (Query(f"avg({busy(_NODE)})", "mean utilization"),),
            "percent",
            at_least=0,
            at_most=100,
        ),
    )


def _where(settings: BoardSettings) -> tuple[Panel, ...]:
    names = settings.names
    owned = f'DCGM_FI_DEV_FB_USED{{{_NODE}, {names.pod}!=""}}'
    owners = f"{names.namespace}, Hostname, gpu"
    by_namespace = f"count by ({names.namespace}) (count by ({owners}) ({owned}))"
    memory = f"gpuscale_container_gpu_memory_used_bytes{{{_NODE}}}"
    whole = f"sum by (Hostname, gpu) ({memory}) > 0"
    part = f"{memory} / on (Hostname, gpu) group_left () ({whole})"
    label = names.namespace
    parts = f'label_replace(sum by ({label}) ({part}), "{label}", "nobody", "{label}", "")'
    return (
        Panel(
            "Cost per hour by namespace, whole GPUs",
            (Query(f"{by_namespace} * $price", f"{{{{{names.namespace}}}}}"),),
            _money(settings),
            "GPUs that belong to one pod alone, and those with MIG instances of a namespace's pods.",
            at_least=0,
            is_stacked=True,
            has_steps=True,
        ),
        Panel(
            "Cost per hour by namespace, parts by memory",
            (Query(f"{parts} * $price", f"{{{{{names.namespace}}}}}"),),
            _money(settings),
            "Every GPU split by the memory that containers hold. What has no namespace is nobody's.",
            at_least=0,
            is_stacked=True,
        ),
        Panel(
            "Cost per hour by model",
            (
                Query(
                    f"count by (modelName) (DCGM_FI_DEV_GPU_TEMP{{{_NODE}}}) * $price",
                    "{{modelName}}",
                ),
            ),
            _money(settings),
            "At the one price: for pools of different prices, choose the nodes of one.",
            at_least=0,
            is_stacked=True,
            has_steps=True,
        ),
        Panel(
            "GPUs there, asked for, busy",
            (
                Query(f"sum(kube_node_status_allocatable{{{GPU_RESOURCES}}})", "there"),
                Query(f"sum(kube_pod_container_resource_requests{{{GPU_RESOURCES}}})", "asked for"),
                Query(f"count({busy(_NODE)} >= $idle) or 0 * {_GPUS}", "busy"),
            ),
            "short",
            "There and asked for are kube-state-metrics', of all nodes.",
            at_least=0,
            has_steps=True,
        ),
    )


def _idle(names: SeriesNames) -> tuple[Panel, ...]:
    hourly = f"avg_over_time(DCGM_FI_DEV_GPU_UTIL{{{_NODE}}}[$__range])"
    labels = f"{GPU_LABELS}, {names.namespace}, {names.pod}"
    return (
        Panel(
            "Mean utilization in the chosen time, least first",
            (Query(f"sort(avg by ({labels}) ({hourly}))"),),
            "percent",
            "Without a pod: nobody asked for the GPU. With one: the pod has it and leaves it unused.",
            kind="table",
            width=24,
            height=9,
            at_least=0,
            at_most=100,
            thresholds=(Threshold(0, "red"), Threshold(20, "orange"), Threshold(50, "green")),
        ),
        Panel(
            "Idle GPUs with and without a pod",
            (
                Query(_idle_owned(names, "!="), "a pod has it"),
                Query(_idle_owned(names, "="), "nobody has it, or it is shared"),
            ),
            "short",
            at_least=0,
            has_steps=True,
            width=24,
        ),
    )


def _idle_owned(names: SeriesNames, sign: str) -> str:
    matchers = f'{_NODE}, {names.pod}{sign}""'
    return f"count({busy(matchers)} < $idle) or 0 * {_GPUS}"
