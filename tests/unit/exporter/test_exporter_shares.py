"""Series of containers and Azure's metrics: sums are the device's values, means are of a minute."""

import pytest

from gpuscale.agent.attribution.processes.shares import ContainerShare, split_utilisation
from gpuscale.agent.exporter.collector import Collector, Extras
from gpuscale.agent.exporter.families.azure import (
    ABSENT,
    AzureCluster,
    AzureMetrics,
    container_name,
)
from gpuscale.agent.exporter.families.containers import GpuShares, container_families, shares_of
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.owners import (
    Attribution,
    ContainerRef,
    Grant,
    NodeGpuResources,
    Unattributed,
)
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading, ProcessReading
from gpuscale.base.clock import ManualClock
from gpuscale.base.exposition.write import render_text
from gpuscale.signals import load_counters

BERT = ContainerRef("ml", "bert-0", "main", "uid-0")
OTHER = ContainerRef("ml", "bert-1", "main", "uid-1")
GPU = GpuIdentity(0, "GPU-a", "00000000:1A:00.0", "NVIDIA H200")
LEADING = (
    'gpu="0",UUID="GPU-a",pci_bus_id="00000000:1A:00.0",device="nvidia0",modelName="NVIDIA H200",'
    'Hostname="n1"'
)
SHARED = Attribution({"GPU-a": (BERT, OTHER)}, {101: BERT, 102: OTHER})


def process(pid, sm, memory):
    return ProcessReading(pid, "python", sm, 0, 0, 0, memory)


TWO = (process(101, 40, 300), process(102, 20, 200))


def reading(util=60, used=700, processes=TWO):
    values = {
        "DCGM_FI_DEV_GPU_UTIL": util,
        "DCGM_FI_DEV_FB_USED": used,
        "DCGM_FI_DEV_FB_TOTAL": 1000,
    }
    return GpuReading(GPU, 1000, values, {}, processes)


def lines(*readings, attribution=SHARED, **options):
    gpus = shares_of(readings, attribution, split_utilisation)
    text = render_text(container_families(gpus, FamilyOptions("n1", **options)))
    return [line for line in text.splitlines() if line[0] != "#"]


def test_shared_gpu_is_split_and_what_is_nobodys_is_told_without_a_pod() -> None:
    # 700 MiB used, of which processes hold 300 and 200; the remaining 200 MiB are the driver's.
    mib = 1024 * 1024
    first = f'{{{LEADING},container="main",namespace="ml",pod="bert-0"}}'
    second = f'{{{LEADING},container="main",namespace="ml",pod="bert-1"}}'
    nobody = f"{{{LEADING}}}"
    assert lines(reading()) == [
        f"gpuscale_container_gpu_utilization_percent{first} 40",
        f"gpuscale_container_gpu_utilization_percent{second} 20",
        f"gpuscale_container_gpu_utilization_percent{nobody} 0",
        f"gpuscale_container_gpu_memory_used_bytes{first} {300 * mib}",
        f"gpuscale_container_gpu_memory_used_bytes{second} {200 * mib}",
        f"gpuscale_container_gpu_memory_used_bytes{nobody} {200 * mib}",
    ]


def test_sampled_use_has_its_error_and_what_goes_to_switching() -> None:
    sampled = [ProcessReading(pid, "python", 40, 0, 0, 0, 100, looks=50) for pid in (101, 102)]
    found = [line for line in lines(reading(util=90, processes=sampled)) if "bert-0" in line]
    # 80 * sqrt(0.5 * 0.5 / 51) = 5.6; two thirds of the time are contended: 40 * 2/3 * 0.11 = 2.9.
    pod = f'{{{LEADING},container="main",namespace="ml",pod="bert-0"}}'
    assert found[:3] == [
        f"gpuscale_container_gpu_utilization_percent{pod} 40",
        f"gpuscale_container_gpu_utilization_standard_error_percent{pod} 5.6",
        f"gpuscale_container_gpu_switching_percent{pod} 2.9",
    ]


@pytest.mark.parametrize("util", [0, 7, 60, 100])
def test_samples_of_a_gpu_add_up_to_the_device(util: int) -> None:
    found = lines(reading(util=util))
    sums = {}
    for line in found:
        name = line.split("{")[0]
        sums[name] = sums.get(name, 0) + int(line.rsplit(" ", 1)[1])
    assert sums == {
        "gpuscale_container_gpu_utilization_percent": util,
        "gpuscale_container_gpu_memory_used_bytes": 700 * 1024 * 1024,
    }


def test_memory_that_is_not_told_leaves_its_series_out() -> None:
    found = lines(reading(processes=(process(101, 60, None),)))
    assert not any("memory" in line for line in found)
    assert found


def test_series_follow_the_spelling_of_labels() -> None:
    assert 'uuid="GPU-a"' in lines(reading(), use_old_namespace=True)[0]
    assert 'pod_name="bert-0"' in lines(reading(), use_old_namespace=True)[0]
    assert 'hostname="n1"' in lines(reading(), names="4.9")[0]
    assert 'pod_uid="uid-0"' in lines(reading(), pod_uid=True)[0]


class Fixed:
    """A reader that gives one reading, whatever the time."""

    def gpus(self):
        return (GPU,)

    def read(self, _now_ms):
        return (reading(),)

    def stats(self):
        return ()

    def close(self) -> None:
        pass


def collector(attribution, styles=("dcgm",), azure=None):
    return Collector(
        Fixed(),
        lambda _: attribution,
        load_counters("DCGM_FI_DEV_GPU_UTIL, gauge, Busy.", "my.csv"),
        FamilyOptions("n1"),
        ManualClock(60_000),
        frozenset(styles),
        Extras(split_utilisation, azure=azure),
    )


def collect(it):
    return it.publish(it.read()).text.decode()


def test_device_series_of_a_shared_gpu_is_served_once_and_names_no_pod() -> None:
    text = collect(collector(SHARED))
    assert f"DCGM_FI_DEV_GPU_UTIL{{{LEADING}}} 60\n" in text
    assert text.count("DCGM_FI_DEV_GPU_UTIL{") == 1
    assert text.count("gpuscale_container_gpu_utilization_percent{") == 3


def test_ack_style_has_its_own_series_of_processes_instead() -> None:
    text = collect(collector(SHARED, styles=("ack",)))
    assert "gpuscale_container" not in text
    assert "DCGM_CUSTOM_PROCESS_SM_UTIL{" in text


def test_without_attribution_there_are_no_series_of_containers_and_nothing_is_up_or_down() -> None:
    text = collect(collector(None))
    assert "gpuscale_container" not in text
    assert "attribution_up" not in text


def test_reasons_are_counted_and_each_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    missing = (
        Unattributed("host_pid_off", "", "set hostPID: true"),
        Unattributed("unknown_device_id", "GPU-x", "no such GPU"),
        Unattributed("unknown_device_id", "GPU-y", "no such GPU"),
    )
    it = collector(Attribution(missing=missing))
    collect(it)
    text = collect(it)
    assert 'gpuscale_exporter_unattributed{reason="host_pid_off"} 1\n' in text
    assert 'gpuscale_exporter_unattributed{reason="unknown_device_id"} 2\n' in text
    assert caplog.messages == [
        "not tied to a container (host_pid_off): set hostPID: true",
        "not tied to a container (unknown_device_id) GPU-x: no such GPU",
    ]


CLUSTER = AzureCluster("/subscriptions/s/aks", "aks")
IDS = 'container_azm_ms_clusterId="/subscriptions/s/aks",container_azm_ms_clusterName="aks"'


def azure_lines(metrics, resources=None):
    text = render_text(metrics.families(resources or NodeGpuResources()))
    return [line for line in text.splitlines() if line[0] != "#" and ABSENT not in line]


def shares(util, memory):
    return (GpuShares(reading(), (ContainerShare(BERT, util, memory), ContainerShare(None, 5, 5))),)


def test_azures_seven_metrics_have_their_names_and_dimensions() -> None:
    metrics = AzureMetrics(CLUSTER)
    metrics.observe(shares(40, 300), 1000)
    labels = (
        f'{IDS},containerName="uid-0/main",gpuId="GPU-a",gpuModel="NVIDIA H200",gpuVendor="nvidia"'
    )
    mib = 1024 * 1024
    assert azure_lines(metrics, NodeGpuResources(8, 7, {BERT: 1})) == [
        f"containerGpuDutyCycle{{{labels}}} 40",
        f"containerGpumemoryTotalBytes{{{labels}}} {1000 * mib}",
        f"containerGpumemoryUsedBytes{{{labels}}} {300 * mib}",
        f'containerGpuLimits{{{IDS},containerName="uid-0/main"}} 1',
        f'containerGpuRequests{{{IDS},containerName="uid-0/main"}} 1',
        f'nodeGpuAllocatable{{{IDS},gpuVendor="nvidia"}} 7',
        f'nodeGpuCapacity{{{IDS},gpuVendor="nvidia"}} 8',
    ]


def test_azures_duty_cycle_is_the_mean_of_the_last_minute() -> None:
    metrics = AzureMetrics(CLUSTER)
    # At 70 s the sample of 10 s has just left the minute; 60 and 20 have the mean 40.
    for at_s, util in ((10, 100), (30, 60), (70, 20)):
        metrics.observe(shares(util, 300), at_s * 1000)
    assert azure_lines(metrics)[0].endswith(" 40")


def test_azures_container_that_is_gone_for_a_minute_is_left_out() -> None:
    metrics = AzureMetrics(CLUSTER)
    metrics.observe(shares(40, 300), 1000)
    metrics.observe((), 61_000)
    assert azure_lines(metrics) == []


@pytest.mark.parametrize(
    ("resources", "absent"),
    [
        (NodeGpuResources(8, 7), []),
        (NodeGpuResources(0, 0), []),
        (NodeGpuResources(None, 7), [("nodeGpuCapacity", "no_api_server")]),
        (
            NodeGpuResources(),
            [("nodeGpuCapacity", "no_api_server"), ("nodeGpuAllocatable", "no_kubelet")],
        ),
    ],
)
def test_azures_counts_of_a_node_are_absent_with_a_reason_and_never_zero(resources, absent) -> None:
    families = {each.name: each for each in AzureMetrics(CLUSTER).families(resources)}
    found = families[ABSENT].samples if ABSENT in families else ()
    assert [(*dict(each.labels).values(), each.value) for each in found] == [
        (*each, 1) for each in absent
    ]
    assert not {name for name, _ in absent} & families.keys()


def test_azures_container_without_a_uid_is_named_by_its_pod() -> None:
    assert container_name(ContainerRef("ml", "bert-0", "main")) == "ml/bert-0/main"


def test_grants_are_served_beside_the_part_of_them_that_is_used() -> None:
    # 300 MiB of the 600 that are 0.6 of 1000; 40 % of the GPU, of 80 % of its cores.
    grants = {"GPU-a": {BERT: Grant(memory_part=0.6, cores_percent=80), OTHER: Grant(400)}}
    attribution = Attribution(SHARED.by_gpu, SHARED.by_pid, grants=grants)
    found = {
        (line.split("{")[0].removeprefix("gpuscale_container_gpu_"), "bert-1" in line): float(
            line.rsplit(" ", 1)[1]
        )
        for line in lines(reading(), attribution=attribution)
        if "grant" in line
    }
    assert found == {
        ("memory_granted_bytes", False): 600 * 1024 * 1024,
        ("memory_granted_bytes", True): 400 * 1024 * 1024,
        ("memory_used_of_granted_ratio", False): 0.5,
        ("memory_used_of_granted_ratio", True): 0.5,
        ("cores_granted_percent", False): 80,
        ("utilization_of_granted_ratio", False): 0.5,
    }
