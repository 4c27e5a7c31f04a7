"""A pulse as a waterfall and as JSON, and a likely fix for the hop where it is stuck."""

from collections.abc import Iterator

from gpuscale.hpa.terms import metric_command
from gpuscale.ops.doctor.checks.metrics_api import group_of
from gpuscale.ops.doctor.facts import quoted
from gpuscale.ops.doctor.pulse.hops import HopTime, Pulse, PulseHop
from gpuscale.ops.doctor.snapshot import HpaLook

_WIDTH = 40
_NAMES = max(len(hop.value) for hop in PulseHop)


def pulse_lines(pulse: Pulse) -> Iterator[str]:
    """Return the waterfall: a line for each hop with its end, its own duration, and a bar."""
    start = "the first request" if pulse.load else "the first change"
    yield f"{pulse.about}: seconds since {start}, to within {pulse.every_ms / 1000:g} s or so"
    yield f"  {'':{_NAMES}} {'at':>7} {'took':>7}"
    for row in _rows(pulse.times):
        yield f"  {row}".rstrip()
    if pulse.load:
        failed = f", {pulse.load.failed} failed" if pulse.load.failed else ""
        yield f"load: {pulse.load.answered} requests answered{failed}"
    stuck = pulse.stuck
    if stuck is None:
        yield "all hops moved"
        return
    yield f"stuck at: {stuck.value}"
    if pulse.fault:
        yield f"  | {pulse.fault}"
    yield f"  -> {pulse.fix}"


def pulse_document(pulse: Pulse) -> dict[str, object]:
    """Return the pulse as JSON-shaped data; times are in seconds, null for a hop that did not react."""
    load = pulse.load
    return {
        "about": pulse.about,
        "through": pulse.stuck is None,
        "hops": [
            {
                "hop": each.hop.name.lower(),
                "after_s": None if each.after_ms is None else each.after_ms / 1000,
                "took_s": None if took is None else took / 1000,
            }
            for each, took in zip(pulse.times, _took_ms(pulse.times), strict=True)
        ],
        "every_s": pulse.every_ms / 1000,
        "stuck": pulse.stuck.name.lower() if pulse.stuck else None,
        "evidence": pulse.fault,
        "fix": pulse.fix,
        "load": {"answered": load.answered, "failed": load.failed} if load else None,
    }


def fix_for(hop: PulseHop, look: HpaLook) -> str:
    """Return a likely fix for a hop that does not react: a sentence with a command.

    Args:
        hop: that did not move.
        look: at the HPA whose chain it is.
    """
    namespace, target = look.namespace, look.hpa.target
    pods = ("-n", namespace, "-l", look.selector)
    match hop:
        case PulseHop.GPU:
            return (
                "Send more load, or for longer (--pulse-for), and check that it reaches these pods: "
                + quoted("kubectl", "get", "pods", "-o", "wide", *pods)
            )
        case PulseHop.VALUE:
            asked = " && ".join(
                metric_command(spec, namespace, look.selector)
                for spec in look.hpa.metrics
                if group_of(spec)
            )
            return f"Run gpuscale doctor without --pulse, and ask for the value: {asked}"
        case PulseHop.HPA:
            name = look.hpa.metadata.name
            return "Send more load, or choose a lower target: " + quoted(
                "kubectl", "describe", "hpa", "-n", namespace, name
            )
        case PulseHop.CREATED:
            return (
                "Look for a quota or an admission webhook that refuses pods: "
                + quoted("kubectl", "describe", target.kind.lower(), "-n", namespace, target.name)
                + f" && {quoted('kubectl', 'get', 'events', '-n', namespace)}"
            )
        case PulseHop.SCHEDULED:
            return (
                "Free a GPU or let a node come; new nodes take minutes (--pulse-for=600): "
                + quoted("kubectl", "describe", "pods", *pods)
            )
        case PulseHop.READY:
            return (
                "Give images and models the time that they take (--pulse-for=600), and see why not: "
                + quoted("kubectl", "describe", "pods", *pods)
            )


def _rows(times: tuple[HopTime, ...]) -> Iterator[str]:
    total = max((each.after_ms or 0 for each in times), default=0)
    for each, took in zip(times, _took_ms(times), strict=True):
        name = f"{each.hop.value:{_NAMES}}"
        if each.after_ms is None or took is None:
            yield f"{name} {'-':>7} {'-':>7}  not seen"
            continue
        bar = _bar(each.after_ms - took, each.after_ms, total)
        yield f"{name} {each.after_ms / 1000:7.1f} {f'+{took / 1000:.1f}':>7}  {bar}"


def _bar(from_ms: int, to_ms: int, total_ms: int) -> str:
    scale = _WIDTH / total_ms if total_ms else 0.0
    start = min(round(from_ms * scale), _WIDTH - 1)
    return " " * start + "#" * max(1, round(to_ms * scale) - start)


def _took_ms(times: tuple[HopTime, ...]) -> Iterator[int | None]:
    """Yield each hop's own duration after the latest hop before it; None if it did not react."""
    latest = 0
    for each in times:
        if each.after_ms is None:
            yield None
            continue
        yield max(0, each.after_ms - latest)
        latest = max(latest, each.after_ms)
