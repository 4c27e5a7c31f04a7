"""The dashboard of GPUs: what each does, who uses it, and how it is.

Its first GPU panels are those of NVIDIA's dashboard 12239, with nodes by name in place of addresses.
"""

from gpuscale.install.boards.model import (
    GPU,
    GPU_LABELS,
    Board,
    BoardSettings,
    LabelVariable,
    Panel,
    Query,
    Row,
    Threshold,
    Variable,
    busy,
    yes_or_no,
)
from gpuscale.install.series_names import SeriesNames

_OF_GPU = "{{Hostname}} GPU {{gpu}}"
_OF_INSTANCE = "{{Hostname}} GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
_TEMPERATURES = (Threshold(83, "orange"), Threshold(87, "red"))
"""Of dashboard 12239."""
_ANY_RED = (Threshold(1, "red"),)


def gpu_board(settings: BoardSettings) -> Board:
    """Return the dashboard of GPUs."""
    names = settings.names
    return Board(
        uid="gpuscale-gpus",
        title="gpuscale / GPUs",
        description="What each GPU does, which pods use it, and how it is.",
        variables=_variables(names),
        rows=(
            Row("All GPUs", _totals(names)),
            Row("Each GPU", _each_gpu()),
            Row("Pods", _pods(names)),
            Row("Shared GPUs", _sharing(names)),
            Row("MIG instances", _instances()),
            Row("Memory and links", _transfers()),
            Row("Faults", _faults()),
        ),
    )


def _variables(names: SeriesNames) -> tuple[Variable, ...]:
    temperature = "DCGM_FI_DEV_GPU_TEMP"
    return (
        LabelVariable("node", "Node", temperature, "Hostname"),
        LabelVariable("gpu", "GPU", f'{temperature}{{Hostname=~"$node"}}', "gpu"),
        LabelVariable("namespace", "Namespace", f'{{__name__=~"{_OWNED}"}}', names.namespace),
    )


_OWNED = "DCGM_FI_DEV_GPU_UTIL|DCGM_FI_DEV_FB_USED|gpuscale_container_gpu_utilization_percent"


def _each(metric: str, factor: str = "") -> tuple[Query, ...]:
    """Return the query of a metric of whole GPUs, one series for each."""
    return (Query(f"{metric}{{{GPU}}}{factor}", _OF_GPU),)


def _stat(title: str, expr: str, unit: str = "short", **more: object) -> Panel:
    return Panel(title, (Query(expr),), unit, kind="stat", width=4, height=4, **more)  # type: ignore[arg-type]


def _totals(names: SeriesNames) -> tuple[Panel, ...]:
    temperature = f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}}"
    used = f'sum(DCGM_FI_DEV_FB_USED{{{GPU}, GPU_I_ID=""}})'
    free = f'sum(DCGM_FI_DEV_FB_FREE{{{GPU}, GPU_I_ID=""}})'
    up = f'0 * sum(up{{job="{names.agent_job}"}})'
    lost = f'count(gpuscale_exporter_gpu_up{{gpu=~"$gpu"}} == 0) or {up}'
    return (
        _stat("GPUs", f"count({temperature})"),
        _stat("Nodes with GPUs", f"count(count by (Hostname) ({temperature}))"),
        _stat("Mean utilization", f"avg({busy(GPU)})", "percent"),
        _stat("Memory in use", f"100 * {used} / ({used} + {free})", "percent"),
        _stat("GPU Power Total", f"sum(DCGM_FI_DEV_POWER_USAGE{{{GPU}}})", "watt"),
        _stat("GPUs that can't be read", lost, thresholds=_ANY_RED),
    )


def _each_gpu() -> tuple[Panel, ...]:
    average = Query(f"avg(DCGM_FI_DEV_GPU_TEMP{{{GPU}}})")
    return (
        Panel("GPU Utilization", _each("DCGM_FI_DEV_GPU_UTIL"), "percent", at_least=0, at_most=100),
        Panel(
            "Tensor Core Utilization",
            (Query(f'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{GPU}, GPU_I_ID=""}}', _OF_GPU),),
            "percentunit",
            "Hopper and newer.",
            at_least=0,
            at_most=1,
        ),
        Panel(
            "GPU Framebuffer Mem Used",
            (Query(f'DCGM_FI_DEV_FB_USED{{{GPU}, GPU_I_ID=""}}', _OF_GPU),),
            "mbytes",
            at_least=0,
        ),
        Panel("GPU Power Usage", _each("DCGM_FI_DEV_POWER_USAGE"), "watt", at_least=0),
        Panel("GPU Temperature", _each("DCGM_FI_DEV_GPU_TEMP"), "celsius", width=9),
        Panel(
            "GPU Avg. Temp",
            (average,),
            "celsius",
            kind="gauge",
            width=3,
            at_least=0,
            at_most=100,
            thresholds=_TEMPERATURES,
        ),
        Panel("GPU SM Clocks", _each("DCGM_FI_DEV_SM_CLOCK", " * 1000000"), "hertz", at_least=0),
    )


def _pods(names: SeriesNames) -> tuple[Panel, ...]:
    by = f"{names.namespace}, {names.pod}"
    matchers = f'{GPU}, {names.namespace}=~"$namespace", {names.pod}!=""'
    legend = f"{{{{{names.namespace}}}}}/{{{{{names.pod}}}}}"

    def of_pods(how: str, metric: str) -> tuple[Query, ...]:
        return (Query(f"{how} by ({by}) ({metric}{{{matchers}}})", legend),)

    return (
        Panel(
            "Utilization by pod",
            of_pods("avg", "DCGM_FI_DEV_GPU_UTIL"),
            "percent",
            "The mean of a pod's GPUs: what an HPA is told of it. Shared GPUs have a row of their own.",
            at_least=0,
            at_most=100,
        ),
        Panel("Memory by pod", of_pods("sum", "DCGM_FI_DEV_FB_USED"), "mbytes", at_least=0),
        Panel(
            "Power by pod",
            of_pods("sum", "DCGM_FI_DEV_POWER_USAGE"),
            "watt",
            width=24,
            is_stacked=True,
        ),
        Panel(
            "Who has which GPU",
            (
                Query(
                    f"max by ({GPU_LABELS}, {by}) (DCGM_FI_DEV_FB_USED{{{matchers}}})",
                ),
            ),
            "mbytes",
            "Memory in use on each GPU that belongs to one pod alone.",
            kind="table",
            width=24,
        ),
    )


def _sharing(names: SeriesNames) -> tuple[Panel, ...]:
    matchers = f'{GPU}, {names.namespace}=~"$namespace"'
    legend = f"GPU {{{{gpu}}}} {{{{{names.pod}}}}} {{{{{names.container}}}}}"
    share = "gpuscale_container_gpu_utilization_percent"
    memory = "gpuscale_container_gpu_memory_used_bytes"
    pods = f'count by ({names.namespace}, {names.pod}, Hostname, gpu) ({share}{{{GPU}, {names.pod}!=""}})'
    return (
        Panel(
            "Parts of the utilization by container",
            (Query(f"{share}{{{matchers}}}", legend),),
            "percent",
            "The parts of a GPU add up to its own value. A part without a pod is nobody's that is known.",
            at_least=0,
            is_stacked=True,
        ),
        Panel(
            "Parts of the memory by container",
            (Query(f"{memory}{{{matchers}}}", legend),),
            "bytes",
            at_least=0,
            is_stacked=True,
        ),
        Panel(
            "Pods on each GPU",
            (Query(f"count by (Hostname, gpu) ({pods})", _OF_GPU),),
            "short",
            "More than one: the GPU is shared.",
            at_least=0,
            has_steps=True,
            width=24,
        ),
    )


def _instances() -> tuple[Panel, ...]:
    only = f'{GPU}, GPU_I_ID!=""'

    def of_instances(title: str, metric: str, unit: str, most: float | None = None) -> Panel:
        queries = (Query(f"{metric}{{{only}}}", _OF_INSTANCE),)
        return Panel(title, queries, unit, at_least=0, at_most=most)

    counted = f"count by (Hostname, gpu, GPU_I_PROFILE) (DCGM_FI_DEV_FB_USED{{{only}}})"
    return (
        of_instances(
            "Engine activity of instances", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "percentunit", 1
        ),
        of_instances(
            "Tensor cores of instances", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "percentunit", 1
        ),
        of_instances("Memory of instances", "DCGM_FI_DEV_FB_USED", "mbytes"),
        Panel("Instances by profile", (Query(counted),), "short", kind="table"),
    )


def _transfers() -> tuple[Panel, ...]:
    return (
        Panel("Memory interface busy", _each("DCGM_FI_DEV_MEM_COPY_UTIL"), "percent", at_least=0),
        Panel(
            "Memory interface active",
            (Query(f'DCGM_FI_PROF_DRAM_ACTIVE{{{GPU}, GPU_I_ID=""}}', _OF_GPU),),
            "percentunit",
            "Hopper and newer.",
            at_least=0,
        ),
        Panel(
            "PCIe",
            (
                Query(f"DCGM_FI_PROF_PCIE_TX_BYTES{{{GPU}}}", f"{_OF_GPU} sent"),
                Query(f"DCGM_FI_PROF_PCIE_RX_BYTES{{{GPU}}}", f"{_OF_GPU} received"),
            ),
            "Bps",
            at_least=0,
        ),
        Panel("NVLink", _each("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"), "MBs", at_least=0),
    )


def _faults() -> tuple[Panel, ...]:
    fresh = "time() - gpuscale_exporter_newest_reading_timestamp_seconds"
    return (
        Panel(
            "Latest XID",
            (Query(f"max by ({GPU_LABELS}, err_code, err_msg) (DCGM_FI_DEV_XID_ERRORS{{{GPU}}})"),),
            "none",
            "0 is none. It stays until the driver or the agent starts again.",
            kind="table",
            width=24,
        ),
        Panel(
            "Remapped rows and PCIe replays",
            (
                Query(
                    f"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{{GPU}}}", f"{_OF_GPU} uncorrectable"
                ),
                Query(f"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS{{{GPU}}}", f"{_OF_GPU} correctable"),
                Query(f"DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{GPU}}}", f"{_OF_GPU} replays"),
            ),
            "short",
            at_least=0,
            has_steps=True,
        ),
        Panel("Age of the newest reading", (Query(fresh, "{{instance}}"),), "s", at_least=0),
        Panel(
            "Fields without a value, by reason",
            (Query("sum by (field, reason) (gpuscale_exporter_absent_fields)"),),
            "short",
            "GPUs that have no value for a field of the counters file.",
            kind="table",
        ),
        yes_or_no(
            "Owners known",
            (Query("gpuscale_exporter_attribution_up", "{{instance}}"),),
            "Whether a node agent knows the pods of its GPUs.",
        ),
        Panel(
            "Devices and processes without a pod, by reason",
            (Query("sum by (instance, reason) (gpuscale_exporter_unattributed)"),),
            "short",
            kind="table",
        ),
    )
