"""What dcgm-exporter 4.8.2 answered to inputs made up here: same counters files, same texts.

`tests/data/dcgm_exporter` holds the inputs with the answers of its packages counters, collector,
transformation and rendermetrics, of release 4.5.3-4.8.2. These are some of 5 000 scrapes drawn at random, of
which all had the same text; left out of the draw was what the page on migration lists as different.
"""

import json
import re
from pathlib import Path

import pytest

from gpuscale.agent.attribution.join import gpu_owners, pod_directory
from gpuscale.agent.attribution.kubelet.allocations import (
    ClaimDevice,
    ContainerDevices,
    KubeletDevice,
    NodeAllocations,
)
from gpuscale.agent.attribution.kubelet.device_ids import is_gpu
from gpuscale.agent.exporter.job_files import JobFiles
from gpuscale.agent.formats.dcgm import dcgm_families
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.readings import GpuIdentity, GpuInstance, GpuReading, ProcessReading
from gpuscale.base.exposition.write import render_text, six_decimals
from gpuscale.kube.informers.records import NodeView, PodRecord
from gpuscale.signals import read_counters
from gpuscale.signals.known_fields import current_name

DATA = Path(__file__).parents[2] / "data" / "dcgm_exporter"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
TAKEN_HERE = {
    f'{UTIL}, gauge, "Busy, or idle."\n',
    f'{UTIL}, gauge, Time "in use".\n',
    f"\ufeff{UTIL}, gauge, Busy.\n",
    f"   \n{UTIL}, gauge, Busy.\n",
    "DCGM_EXP_XID_ERRORS_TOTAL, counter, Newer.\n",
    "DCGM_FI_DEV_GPU_UTIL_RATIO, gauge, One of each kind.\n",
    "DCGM_FI_SYSTEM_DRIVER_VERSION, gauge, One of each kind.\n",
}
"""What ends dcgm-exporter 4.8.2, and is clear all the same."""
REFUSED_HERE = {f'{UTIL},gauge,"Busy,\nor idle."\n'}
"""A help text over several lines: the other rows of its file are served."""


def recorded(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("case", recorded("counters.jsonl"), ids=lambda case: repr(case["text"]))
def test_counters_file_has_the_rows_of_upstream(case) -> None:
    text, rows = case["text"], case["rows"]
    found = read_counters(text, "my.csv")
    if text in TAKEN_HERE:
        assert rows is None
        assert found.rows
        assert not found.problems
    elif rows is None or text in REFUSED_HERE:
        assert found.problems
    else:
        first = {name: [name, type_, help_] for name, type_, help_ in reversed(rows)}
        assert not found.problems
        assert sorted([each.name, each.type, each.help] for each in found.rows) == sorted(
            first.values()
        )


@pytest.mark.parametrize("case", recorded("scrapes.jsonl"), ids=lambda case: case["mode"])
def test_scrape_is_the_text_of_upstream(case, tmp_path: Path) -> None:
    options = case["options"]
    families = dcgm_families(
        readings := tuple(read_gpus(case)),
        read_counters(case["counters"], "my.csv").rows,
        attribution(case, [each.gpu for each in readings]),
        FamilyOptions(
            options.get("hostname", ""),
            use_old_namespace=options.get("old", False),
            replace_blanks_in_model_name=options.get("blanks", False),
            pod_uid=options.get("uid", False),
            pod_labels=options.get("labels", False),
            virtual_gpus=options.get("virtual", False),
            claim_labels=options.get("dra", False),
            jobs=jobs(case, tmp_path),
        ),
    )
    assert render_text(families, float_text=six_decimals).splitlines() == case["text"]


def read_gpus(case):
    for gpu in case["gpus"]:
        names = gpu["index"], gpu["uuid"], gpu["pci"], gpu["model"]
        for part in gpu.get("instances", [gpu]):
            instance = (
                GpuInstance(part["id"], part["profile"], part["uuid"]) if "id" in part else None
            )
            values = {current_name(name): value for name, value in part["values"].items()}
            processes = tuple(
                ProcessReading(pid, "python", sm if instance is None else None, 0, 0, 0, size >> 20)
                for pid, sm, size, _, uuid, of in case.get("processes", [])
                if (uuid, of) == (gpu["uuid"], part.get("id"))
            )
            yield GpuReading(GpuIdentity(*names, instance), 0, values, {}, processes)


def attribution(case, gpus):
    """Return whose GPUs and processes are, from the kubelet's list and the API server's pods."""
    claims = {
        ("gpu.nvidia.com", *key.split("/")): uuid for key, uuid in case.get("slices", {}).items()
    }
    kept = case["options"].get("labels", False)
    pods = tuple(
        PodRecord(
            namespace,
            name,
            uid,
            containers=tuple(each[2] for each in case["kubelet"] if each[1] == name),
            labels={re.sub("[^a-zA-Z0-9_]", "_", key): value for key, value in labels.items()}
            if kept
            else {},
        )
        for namespace, name, uid, labels in case.get("pods", [])
    )
    directory = pod_directory(NodeView(pods, {}, has_pods=True))
    owners = gpu_owners(allocations(case), directory, gpus, claims)
    by_uid = {pod.uid: pod for pod in pods}
    by_pid = {
        pid: ContainerRef(by_uid[uid].namespace, by_uid[uid].name, "", uid)
        for pid, _, _, uid, _, _ in case.get("processes", [])
    }
    return Attribution(owners.by_gpu, by_pid, holdings=owners.holdings)


def allocations(case):
    extra = case.get("resources", ())
    return NodeAllocations(
        tuple(
            ContainerDevices(
                namespace,
                pod,
                container,
                tuple(
                    device
                    for resource, ids in groups
                    for device in (KubeletDevice(resource, each) for each in ids)
                    if is_gpu(device, extra)
                ),
                tuple(
                    ClaimDevice(driver, pool, device, (), claim, of)
                    for of, claim, driver, pool, device in claims
                ),
            )
            for namespace, pod, container, groups, claims in case.get("kubelet", [])
        )
    )


def jobs(case, folder):
    files = case.get("jobs", {})
    for name, text in files.items():
        (folder / name).write_text(text)
    return JobFiles(folder).read(files)
