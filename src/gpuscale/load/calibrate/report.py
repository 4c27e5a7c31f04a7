"""The result of a calibration as a document, and as text for a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuscale.base.words import printable
from gpuscale.load.calibrate.analysis import Analysis, Measurements
from gpuscale.load.calibrate.levels import Level
from gpuscale.load.calibrate.scaleout import LoadStep, ScaleOutCourse
from gpuscale.load.calibrate.signals import SignalJudgement
from gpuscale.load.calibrate.writing import service_model

Object = dict[str, Any]
_CURVE_POINTS = 24
WITHIN = 0.2
"""By how much measured and predicted latency may differ before the prediction counts as wrong."""


def document(
    url: str,
    measured: Measurements,
    analysis: Analysis,
    check: tuple[Level, float, float | None] | str,
    step: tuple[LoadStep, ScaleOutCourse] | None,
) -> Object:
    """Return all measurements and conclusions; times in ms, rates per second, absent if unknown.

    Args:
        url: what was calibrated.
        measured: the levels.
        analysis: what they say.
        check: the level at the target, predicted and measured latency; or why there is none.
        step: a scale-out, and what is predicted of it.
    """
    objective = measured.objective
    found: Object = {
        "apiVersion": "gpuscale.dev/v1alpha1",
        "kind": "Calibration",
        "target": {"url": url},
        "objective": {
            "percentile": objective.percentile,
            "milliseconds": objective.limit_ms,
            "errorPercent": objective.errors_percent,
        },
        "end": {"why": measured.end.why, "isWhole": measured.end.is_whole},
        "withoutLoad": {
            "meanMilliseconds": measured.baseline.mean_ms,
            "p95Milliseconds": measured.baseline.percentile_ms(95),
        },
        "levels": [_level(each, measured, analysis) for each in measured.levels],
        "signals": [_signal(each) for each in analysis.signals],
        "notes": list(analysis.notes),
    }
    if analysis.limit is not None:
        limit = analysis.limit
        found["limit"] = {
            "rate": limit.rate,
            "low": limit.low,
            # If no level exceeded the limit, it is only a lower bound.
            **({"high": limit.high} if analysis.is_bounded else {}),
            "method": "queue" if analysis.is_modelled else "levels",
        }
    if analysis.fit is not None and analysis.knee is not None:
        queue = analysis.fit.queue
        found["model"] = {
            "queue": queue.words,
            "capacity": queue.capacity,
            "low": analysis.fit.capacity[0],
            "high": analysis.fit.capacity[1],
            "difference": analysis.fit.difference,
            "service": service_model(queue, measured.baseline.mean_ms),
        }
        found["knee"] = {"rate": analysis.knee.rate, "meanMilliseconds": analysis.knee.mean_ms}
        found["curve"] = _curve(analysis, objective.percentile)
    if isinstance(check, str):
        found["unchecked"] = check
    else:
        level, predicted, seen = check
        found["check"] = {
            "rate": level.rate,
            "predictedMilliseconds": predicted,
            **(
                {}
                if seen is None
                else {"measuredMilliseconds": seen, "difference": seen / predicted - 1}
            ),
        }
    if step is not None:
        found["scaleOut"] = _scale_out(*step)
    return found


def _level(level: Level, measured: Measurements, analysis: Analysis) -> Object:
    why = ""
    if level in analysis.disturbed:
        why = "disturbed"
    elif level not in measured.usable:
        why = "generator late or too short"
    found: Object = {
        "rate": level.rate,
        "seconds": level.measured_s,
        "answered": level.answered,
        "failed": level.failed,
        "answeredPerSecond": level.answered_per_s,
        "latencyMilliseconds": {f"p{key:g}": value for key, value in level.percentile_ms.items()},
        "lateMilliseconds": level.late_ms,
        "inFlight": level.in_flight,
        "keepsObjective": level.keeps(measured.objective),
        "isUsed": not why,
        "signals": {
            name: sum(values) / len(values) for name, values in level.signals.items() if values
        },
    }
    if level.mean_ms is not None:
        found["latencyMilliseconds"]["mean"] = level.mean_ms
    if why:
        found["leftOut"] = why
    if level.faults:
        found["faults"] = dict(level.faults)
    if level.cut:
        found["cut"] = level.cut
    return found


def _signal(signal: SignalJudgement) -> Object:
    found: Object = {"name": signal.name, "fitness": signal.fitness.value, "why": signal.why}
    optional = {
        "atLimit": signal.at_limit,
        "interval": signal.interval,
        "target": signal.target,
        "separates": signal.separates,
    }
    return found | {key: value for key, value in optional.items() if value is not None}


def _curve(analysis: Analysis, percentile: float) -> list[Object]:
    if analysis.curve is None or analysis.fit is None:
        return []
    capacity = analysis.fit.queue.capacity
    points = []
    for index in range(1, _CURVE_POINTS + 1):
        point = analysis.curve.at(capacity * 0.98 * index / _CURVE_POINTS, percentile)
        points.append(
            {
                "rate": point.rate,
                "mean": point.mean_ms,
                f"p{percentile:g}": point.percentile_ms[percentile],
            }
        )
    return points


def _scale_out(step: LoadStep, found: ScaleOutCourse) -> Object:
    return {
        "fromRate": step.from_rate,
        "toRate": step.to_rate,
        "startupSeconds": step.startup_s,
        "fromReplicas": found.from_replicas,
        "toReplicas": found.to_replicas,
        "neededReplicas": found.needed_replicas,
        "decidedSeconds": found.decided_s,
        "readySeconds": found.ready_s,
        "worstMilliseconds": found.worst_ms,
        "missedRequests": found.missed,
        "steadyMilliseconds": found.steady_ms,
        "changes": [{"seconds": at, "replicas": count} for at, count in found.changes],
    }


def text(found: Mapping[str, Any]) -> str:
    """Return the document in lines for a terminal."""
    return "\n".join(_lines(found))


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    percentile = f"p{found['objective']['percentile']:g}"
    yield printable(found["target"]["url"])
    yield (
        f"objective  {percentile} at most {found['objective']['milliseconds']:g} ms, errors at most "
        f"{found['objective']['errorPercent']:g} %"
    )
    yield ""
    yield (
        f"{'requests/s':>10}  {'answered/s':>10}  {'mean ms':>8}  {percentile + ' ms':>8}  "
        f"{'failed':>6}  {'in flight':>9}"
    )
    for level in sorted(found["levels"], key=lambda each: each["rate"]):
        yield _level_line(level, percentile)
    yield ""
    yield f"ramp       {found['end']['why']}"
    if model := found.get("model"):
        yield (
            f"replica    {model['queue']}; full at {model['capacity']:.4g} requests/s "
            f"({model['low']:.4g} to {model['high']:.4g}); replay and measurement differ by "
            f"{100 * model['difference']:.0f} %"
        )
        yield (
            f"knee       {found['knee']['rate']:.4g} requests/s, where throughput divided by "
            f"latency is largest "
            f"(mean {found['knee']['meanMilliseconds']:.4g} ms)"
        )
    if (limit := found.get("limit")) and "high" not in limit:
        yield (
            f"limit      at least {limit['rate']:.4g} requests/s keep the objective; "
            "no rate was measured that misses it"
        )
    elif limit:
        how = "by the fitted queue"
        if limit["method"] != "queue":
            how = "between two levels, without a model"
        yield (
            f"limit      {limit['rate']:.4g} requests/s keep the objective "
            f"({limit['low']:.4g} to {limit['high']:.4g}), {how}"
        )
    elif any(level["keepsObjective"] for level in found["levels"]):
        yield "limit      none: levels contradict each other"
    else:
        yield "limit      none: no rate was found that keeps the objective"
    for index, signal in enumerate(found["signals"]):
        yield f"{'signals' if not index else '':10} {_signal_line(signal)}"
    yield from _outcome(found)
    for note in found["notes"]:
        yield f"note       {printable(note)}"


def _level_line(level: Mapping[str, Any], percentile: str) -> str:
    latency = level["latencyMilliseconds"]

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}"

    words = [] if level["keepsObjective"] else ["missed"]
    words += [] if level["isUsed"] else [f"left out: {level['leftOut']}"]
    words += [level["cut"]] if "cut" in level else []
    words += (
        [", ".join(f"{key}: {count}" for key, count in level["faults"].items())]
        if "faults" in level
        else []
    )
    return (
        f"{level['rate']:>10.4g}  {level['answeredPerSecond']:>10.4g}  {number(latency.get('mean')):>8}  "
        f"{number(latency.get(percentile)):>8}  {level['failed']:>6}  {level['inFlight']:>9.3g} "
        f" {'; '.join(words)}"
    ).rstrip()


def _signal_line(signal: Mapping[str, Any]) -> str:
    name = printable(signal["name"])
    if "target" not in signal:
        return f"{name}: don't scale on it ({signal['fitness']}): {signal['why']}"
    low, high = sorted(signal["interval"])
    return (
        f"{name}: {signal['atLimit']:.4g} at the limit ({low:.4g} to {high:.4g}), "
        f"target {signal['target']:.3g}; {signal['why']}"
    )


def _outcome(found: Mapping[str, Any]) -> Iterator[str]:
    if step := found.get("scaleOut"):
        decided = (
            "no decision"
            if step["decidedSeconds"] is None
            else f"decided after {step['decidedSeconds']:.0f} s"
        )
        ready = (
            "never enough are ready"
            if step["readySeconds"] is None
            else f"users served again after {step['readySeconds']:.0f} s"
        )
        yield (
            f"scale-out  {step['fromRate']:.4g} to {step['toRate']:.4g} requests/s: "
            f"{step['fromReplicas']} to {step['toReplicas']} replicas "
            f"({step['neededReplicas']} needed), {decided}, {ready}"
        )
        yield (
            f"{'':10} about {step['missedRequests']:.0f} requests miss the objective meanwhile, "
            f"the worst waits "
            f"{step['worstMilliseconds'] / 1000:.3g} s"
        )
    if why := found.get("unchecked"):
        yield f"check      none: {printable(why)}; nothing here was held against a prediction"
    if check := found.get("check"):
        if "measuredMilliseconds" not in check:
            yield f"check      {check['rate']:.4g} requests/s: no answer"
            return
        difference = check["difference"]
        verdict = (
            "as predicted"
            if abs(difference) <= WITHIN
            else "not as predicted: don't trust the target"
        )
        yield (
            f"check      {check['rate']:.4g} requests/s: predicted {check['predictedMilliseconds']:.4g} ms, "
            f"measured {check['measuredMilliseconds']:.4g} ms ({100 * difference:+.0f} %), {verdict}"
        )
