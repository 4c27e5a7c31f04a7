"""An HPA and its controller's memory as the kernel's numbers, and back."""

from gpuscale.base.objects.hpa import (
    Behavior,
    HorizontalPodAutoscaler,
    PolicyType,
    SelectPolicy,
)
from gpuscale.hpa.kernel.functions import PLAIN, Kernel
from gpuscale.hpa.kernel.memory import (
    COUNTS,
    DISABLED,
    DOWNS,
    MAX,
    MIN,
    OUTDATED,
    PERCENT,
    PODS,
    UPS,
    VALUES,
    Cells,
    Limits,
    Rules,
    cells_of,
    part,
)
from gpuscale.hpa.types import ControllerSettings, HpaState, Recommendation, ScaleEvent

_SELECTS = {SelectPolicy.MAX: MAX, SelectPolicy.MIN: MIN, SelectPolicy.DISABLED: DISABLED}
_KINDS = {PolicyType.PODS: PODS, PolicyType.PERCENT: PERCENT}
_NO_BEHAVIOR = Behavior()


def least_replicas(hpa: HorizontalPodAutoscaler) -> int:
    """Return `minReplicas`; an HPA without one counts as 1."""
    return 1 if hpa.min_replicas is None else hpa.min_replicas


def limits_of(
    hpa: HorizontalPodAutoscaler, settings: ControllerSettings, kernel: Kernel = PLAIN
) -> Limits:
    """Return the limits of an HPA's count."""
    behavior, window_s = hpa.behavior or _NO_BEHAVIOR, settings.downscale_stabilization_s
    ups, downs = behavior.scale_up.policies, behavior.scale_down.policies
    policies = [
        number for p in (*ups, *downs) for number in (_KINDS[p.type], p.value, p.period_s * 1000)
    ]
    return Limits(
        least=least_replicas(hpa),
        most=hpa.max_replicas,
        has_behavior=int(hpa.behavior is not None),
        window_ms=window_s * 1000,
        up=Rules(
            window_ms=(behavior.scale_up.stabilization_window_s or 0) * 1000,
            select=_SELECTS[behavior.scale_up.select_policy],
            first=0,
            after=len(ups),
        ),
        down=Rules(
            window_ms=scale_down_window_s(behavior, window_s) * 1000,
            select=_SELECTS[behavior.scale_down.select_policy],
            first=len(ups),
            after=len(ups) + len(downs),
        ),
        policies=kernel.column(policies),
    )


def scale_down_window_s(behavior: Behavior, downscale_stabilization_s: int) -> int:
    """Return the scale-down window: the HPA's own, or the controller's."""
    window_s = behavior.scale_down.stabilization_window_s
    return downscale_stabilization_s if window_s is None else window_s


def memory_of(state: HpaState, kernel: Kernel = PLAIN) -> Cells:
    """Return the memory as arrays, with space for the entries that one sync may add."""
    known, ups, downs = state.recommendations, state.scale_up_events, state.scale_down_events
    places = max(len(known) + 2, len(ups) + 1, len(downs) + 1)
    cells = [0] * cells_of(places)
    cells[:COUNTS] = len(known), len(ups), len(downs)
    _fill(cells, 0, [each.replicas for each in known])
    _fill(cells, 1, [each.time_ms for each in known])
    for kind, events in ((UPS, ups), (DOWNS, downs)):
        _fill(cells, VALUES[kind], [each.replica_change for each in events])
        _fill(cells, VALUES[kind] + 1, [each.time_ms for each in events])
        _fill(cells, OUTDATED[kind], [int(each.outdated) for each in events])
    return kernel.column(cells)


def _fill(cells: list[int], index: int, values: list[int]) -> None:
    first = part(cells, index)
    cells[first : first + len(values)] = values


def recommendations_with(
    known: tuple[Recommendation, ...], place: int, new: Recommendation
) -> tuple[Recommendation, ...]:
    """Return the recommendations with a new one inserted."""
    return (*known[:place], new, *known[place + 1 :])


def scale_events(memory: Cells, kind: int) -> tuple[ScaleEvent, ...]:
    """Return the remembered scale events: UPS or DOWNS."""
    values, times = part(memory, VALUES[kind]), part(memory, VALUES[kind] + 1)
    outdated = part(memory, OUTDATED[kind])
    return tuple(
        ScaleEvent(
            int(memory[values + place]), int(memory[times + place]), bool(memory[outdated + place])
        )
        for place in range(memory[kind])
    )
