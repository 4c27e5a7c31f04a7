"""Simulated GPUs under Kubernetes: the pods that hold them are the ones that are busy."""

from collections.abc import Sequence

from gpuscale.agent.exporter.simulated_pods import SimulatedPods
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.readings import GpuReading
from gpuscale.agent.gpu.simulated import SimulatedReader

A = ContainerRef("ml", "a", "main")
B = ContainerRef("ml", "b", "main")
UTIL = "DCGM_FI_DEV_GPU_UTIL"


def read(*holders_of_gpu: tuple[ContainerRef, ...]):
    """Return the readings and owners of the second collect, which knows the holders."""
    pods = SimulatedPods()
    reader = SimulatedReader("n", MODELS["NVIDIA H200"], len(holders_of_gpu), 1, pods.work)
    held = {
        gpu.allocated_as: holders
        for gpu, holders in zip(reader.gpus(), holders_of_gpu, strict=True)
    }
    owners = pods.owners(lambda _: Attribution(by_gpu=held))
    owners(reader.read(1_000))
    readings = reader.read(2_000)
    return readings, owners(readings)


def test_all_use_is_the_holders() -> None:
    (reading,), attribution = read((A,))
    assert attribution is not None
    assert [attribution.by_pid[each.pid] for each in reading.processes] == [A]
    assert reading.processes[0].sm_util == reading.values[UTIL]


def test_holders_of_a_shared_gpu_split_its_use() -> None:
    (reading,), attribution = read((A, B))
    assert attribution is not None
    uses = {attribution.by_pid[each.pid]: each.sm_util for each in reading.processes}
    assert set(uses) == {A, B}
    assert abs(uses[A] - uses[B]) <= 1


def test_a_gpu_that_nobody_holds_is_nobodys() -> None:
    readings, attribution = read((), (B,))
    assert attribution is not None
    assert [each.pid in attribution.by_pid for each in readings[0].processes] == [False]


def test_made_up_processes_are_not_looked_for_on_the_host() -> None:
    pods = SimulatedPods()
    seen: list[GpuReading] = []

    def attribution(readings: Sequence[GpuReading]) -> Attribution:
        seen.extend(readings)
        return Attribution()

    owners = pods.owners(attribution)
    reader = SimulatedReader("n", MODELS["NVIDIA H200"], 1, 1, pods.work)
    owners(reader.read(1_000))
    assert [each.processes for each in seen] == [()]
