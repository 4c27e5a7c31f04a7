"""A recorded rehearsal, written to a real Prometheus and replayed by `gpuscale simulate`."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster_samples import samples_of, sliced
from gpuscale.base.documents.documents import dump_documents, load_documents
from gpuscale.lab.scenarios import find_setup
from gpuscale.testing.prometheus import serve

GPUSCALE = Path(sys.executable).parent / "gpuscale"
NAMESPACE = "gpuscale-rehearsal"
START_MS = 1_767_225_600_000
DEMAND = "rehearsed_requests_per_second"
"""A gauge beside what every cluster has: the load that the rehearsal really had."""


def replayed(
    scenario: str,
    rehearsed: dict[str, Any],
    manifests: list[str],
    folder: Path,
    *,
    rules: Path | None = None,
    knows_demand: bool = False,
    settings: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the part `replay` of a rehearsal's replay with the settings that really ran.

    Args:
        scenario: that was rehearsed: a shipped one's name, or a path.
        rehearsed: the document of `gpuscale rehearse -o json`.
        manifests: texts of the Deployment and its HPA, as the scenario has them.
        folder: for Prometheus' data and the files of the replay.
        rules: prometheus-adapter's, where the scenario has some.
        settings: for `--set`: what ran and no series says, such as the node autoscaler's waits.
        knows_demand: whether the replay gets the recorded requests, or has to estimate demand.
    """
    setup = find_setup(scenario)
    (workload,), pool = setup.workloads, setup.pools[0]
    name = workload.deployment.partition("/")[2]
    step_s = setup.pipeline.scrape_interval // 1000
    times_ms = [START_MS + round(t * 1000) for t in rehearsed["series"]["t"]]
    slices = samples_of(
        rehearsed,
        START_MS,
        namespace=NAMESPACE,
        deployment=name,
        model=pool.gpu_model.name,
        startup_s=workload.lifecycle.startup_ms / 1000,
        gpus_per_node=pool.gpus,
    )
    demand = sliced([({"__name__": DEMAND}, rehearsed["series"][f"load/{name}"])], times_ms)
    with serve([], folder) as prometheus:
        for one, other in zip(slices, demand, strict=True):
            prometheus.write([*one, *other])
        (folder / "manifests.yaml").write_text(_placed(manifests))
        command = [
            *(GPUSCALE, "simulate", "-o", "json", "--from-prometheus", prometheus.url),
            *("--workload", f"{NAMESPACE}/{name}", "--manifests", "manifests.yaml"),
            *("--step", f"{step_s}s", "--range", f"{setup.duration_ms // 1000}s"),
            *("--until", str((START_MS + setup.duration_ms) // 1000)),
            *(() if rules is None else ("--rules", rules)),
            *(("--demand-query", DEMAND) if knows_demand else ()),
            *(f"--set={each}" for each in settings),
        ]
        done = subprocess.run(
            list(map(str, command)),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(done.stderr)
    replay: dict[str, Any] = json.loads(done.stdout)["replay"]
    return replay


def _placed(manifests: list[str]) -> str:
    """Return manifests in the namespace of the rehearsal, which the scenario's own becomes."""
    found = []
    for text in manifests:
        for each in load_documents(text, "manifests"):
            body: Any = each.data
            body["metadata"]["namespace"] = NAMESPACE
            found.append(body)
    return dump_documents(found)
