"""The results of a GPU load: document, timeline, summary text."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from gpuscale.base.words import counted
from gpuscale.load.gpu.holding import GpuLook, HeldGpu
from gpuscale.load.gpu.plan import TOLERANCE, GpuPlan
from gpuscale.load.timeline.document import timeline_document
from gpuscale.load.timeline.types import Timeline, Track
from gpuscale.load.watching.notes import Watched

SETTLE_MS = 5_000
"""Until the correction has found its level; what was before is shown, and not judged."""
_MEMORY_TOLERANCE = 0.02


def gpu_timeline(
    plan: GpuPlan, held: Sequence[HeldGpu], watched: Watched | None = None
) -> Timeline:
    """Return the wanted, launched and counted shares every half second, and what else was watched."""
    tracks: list[Track] = []
    seen = watched or Watched()
    for each in held:
        ending = f" {each.gpu.uuid[:8]}" if len(held) > 1 else ""
        made = [
            Track(f"wanted{ending}", "%", "load", _points(each.looks, "wanted")),
            Track(f"own{ending}", "%", "gpu", _points(each.looks, "own")),
            Track(f"NVML{ending}", "%", "gpu", _points(each.looks, "counted")),
            Track(
                f"memory{ending}",
                "GiB",
                "gpu",
                tuple(
                    (look.at_ms, None if look.used_bytes is None else look.used_bytes / 2**30)
                    for look in each.looks
                ),
            ),
        ]
        # Unmeasurable figures have no track; the document has the reason.
        tracks += [track for track in made if any(value is not None for _, value in track.points)]
    return Timeline(
        f"GPU load: {plan.shape}",
        min(each.started_ms for each in held),
        max(each.ended_ms for each in held),
        (*tracks, *seen.tracks),
        seen.marks,
        seen.spans,
    )


def _points(looks: Sequence[GpuLook], name: str) -> tuple[tuple[int, float | None], ...]:
    return tuple((look.at_ms, getattr(look, name)) for look in looks)


def gpu_document(
    plan: GpuPlan, held: Sequence[HeldGpu], watched: Watched | None = None
) -> dict[str, Any]:
    """Return a run's results; unmeasured figures are left out."""
    return {
        "apiVersion": "gpuscale.dev/v1alpha1",
        "kind": "GpuLoadResult",
        "load": {
            "shape": plan.shape,
            "durationSeconds": plan.duration_s,
            "processes": plan.processes,
            "multiprocessorsPercent": plan.multiprocessors_percent,
        },
        "gpus": [_gpu(plan, each) for each in held],
        "faults": [fault for each in held for fault in _faults(plan, each)],
        "timeline": timeline_document(gpu_timeline(plan, held, watched)),
    }


def _gpu(plan: GpuPlan, held: HeldGpu) -> dict[str, Any]:
    looks = _settled(held) or held.looks
    wanted, own, by_nvml = (_mean(looks, name) for name in ("wanted", "own", "counted"))
    percent = {"wanted": wanted, "own": own, "counted": by_nvml}
    memory = {
        "wanted": plan.memory_bytes,
        "allocated": held.allocated_bytes,
        "counted": held.used_bytes,
    }
    return {
        "name": held.gpu.name,
        "uuid": held.gpu.uuid,
        "percent": {key: value for key, value in percent.items() if value is not None},
        "uncounted": held.uncounted,
        "memoryBytes": {key: value for key, value in memory.items() if value is not None},
        "bursts": {"launched": held.launched, "skipped": held.skipped},
        "otherProcesses": len(held.others),
    }


def _settled(held: HeldGpu) -> list[GpuLook]:
    return [look for look in held.looks if look.at_ms - held.started_ms > SETTLE_MS]


def _mean(looks: Sequence[GpuLook], name: str) -> float | None:
    """Return the mean of the existing values; None if there are none."""
    values = [value for look in looks if (value := getattr(look, name)) is not None]
    return fmean(values) if values else None


def _faults(plan: GpuPlan, held: HeldGpu) -> list[str]:
    """Return what was not held, by NVML's figures or else the GPU's own clock."""
    settled = _settled(held)
    wanted, by_nvml = _mean(settled, "wanted"), _mean(settled, "counted")
    found = by_nvml if by_nvml is not None else _mean(settled, "own")
    faults = []
    if wanted is not None and found is not None and abs(found - wanted) > TOLERANCE:
        faults.append(
            f"{held.gpu.name}: found {found:.1f} % on average, expected {wanted:.1f} % ± {TOLERANCE:g}"
        )
    wanted_bytes = plan.memory_bytes
    if wanted_bytes and held.used_bytes is not None:
        missed = abs(held.used_bytes - wanted_bytes) / wanted_bytes
        if missed > _MEMORY_TOLERANCE:
            faults.append(
                f"{held.gpu.name}: found {held.used_bytes / 2**30:.2f} GiB held, "
                f"expected {wanted_bytes / 2**30:.2f} GiB"
            )
    return faults


def gpu_text(document: Mapping[str, Any]) -> str:
    """Return the result as a short text."""
    lines = [f"{name}: {text}" for name, text in gpu_totals(document).items()]
    return "\n".join([*lines, *document["faults"]])


def gpu_totals(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what was held on each GPU, in words."""
    totals: dict[str, str] = {}
    for gpu in document["gpus"]:
        percent, memory = gpu["percent"], gpu["memoryBytes"]
        parts = [
            f"{word} {percent[key]:.1f} %"
            for key, word in (("wanted", "wanted"), ("counted", "NVML"), ("own", "own"))
            if key in percent
        ]
        if memory.get("wanted"):
            by_nvml = memory.get("counted")
            parts.append(
                f"memory {(memory['allocated'] if by_nvml is None else by_nvml) / 2**30:.2f} GiB"
            )
        skipped = gpu["bursts"]["skipped"]
        parts += [f"{counted(skipped, 'burst')} skipped"] if skipped else []
        name = f"{gpu['name']} {gpu['uuid'][:8]}" if len(document["gpus"]) > 1 else gpu["name"]
        totals[name] = ", ".join(parts) or "too short to say"
    return totals
