"""What a terminal shows of a rehearsal: workloads, HPAs, Jobs and nodes as the API server has them."""

from gpuscale.lab.rehearse.mark import RehearsalMark
from gpuscale.lab.rehearse.placing import placed
from gpuscale.lab.rehearse.site import RehearsalSite
from gpuscale.lab.rehearse.state import state_of
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.autoscaler import SyncFigures
from gpuscale.lab.views.terminal import state_text

NOW = 1_700_000_000_000


def begun(name: str) -> RehearsalSite:
    site = RehearsalSite(placed(find_setup(name), RehearsalMark("r", "ns")), NOW)
    site.cloud.start()
    site.begin(NOW)
    return site


def shown(site: RehearsalSite) -> list[list[str]]:
    readings = {node: site.gpus.read(node, site.engine.now_ms) for node in site.gpus.readers}
    return [
        line.split() for line in state_text(state_of(site, readings, 10.0), 100).plain.split("\n")
    ]


def test_a_service_is_shown_with_its_load_and_what_its_hpa_says() -> None:
    site = begun("ack-bert")
    site.engine.run_until(NOW + 61_000)
    site.figures["ns/gpu-hpa"] = SyncFigures(2, 23_000)
    site.set_replicas("ns/bert-intent-detection", 2)
    heads, workload, caption = shown(site)
    assert heads == ["Workload", "Load/s", "HPA", "sees", "Ready", "Wanted", "Pending", "Waiting"]
    # 4.6 requests/s from 60 s on; no pod is there yet, so those of one second wait.
    assert workload == ["bert-intent-detection", "4.6", "23", "0", "2", "2", "4.6"]
    assert caption == ["00:01:01", "at", "10x", "nodes", "1", "of", "1", "ready", "GPUs", "0%"]


def test_before_the_start_there_are_nodes_only() -> None:
    site = RehearsalSite(placed(find_setup("ack-bert"), RehearsalMark("r", "ns")), NOW)
    site.cloud.start()
    assert shown(site) == [
        ["00:00:00", "at", "10x", "nodes", "1", "of", "1", "ready", "GPUs", "0%"]
    ]


def test_jobs_are_shown_with_those_that_wait() -> None:
    site = begun("aks-mnist-jobs")
    site.engine.run_until(NOW + 61_000)
    heads, jobs, _ = shown(site)
    assert heads[0] == "Job"
    assert jobs == ["samples-tf-mnist-demo", "20", "0", "0", "20"]
