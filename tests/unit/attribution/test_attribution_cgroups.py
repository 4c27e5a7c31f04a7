import os
import shutil
from pathlib import Path

import pytest

from gpuscale.agent.attribution.processes.cgroups import (
    HOST,
    ProcessPlace,
    ProcessTable,
    parse_cgroup,
    parse_start_ticks,
    sees_host_processes,
)

DATA = Path(__file__).parents[2] / "data" / "cgroups"
CONTAINER = "3f4a1c0b9d2e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f30"
UID = "0f2c9a4e-7b1d-4c3a-9e5f-6d8b7a1c2e34"
STATIC = "5d41402abc4b2a76b9719d911017c592"
IN_POD = ProcessPlace(UID, CONTAINER)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("containerd-systemd-v2", IN_POD),
        ("containerd-cgroupfs-v2", IN_POD),
        ("containerd-cgroupfs-v1", IN_POD),
        ("containerd-systemd-v1", IN_POD),
        ("containerd-cgroupfs-under-systemd", IN_POD),
        ("guaranteed-systemd", IN_POD),
        ("guaranteed-cgroupfs", IN_POD),
        ("crio-systemd", IN_POD),
        ("crio-crun-subgroup", IN_POD),
        ("crio-conmon", ProcessPlace(UID, "")),
        ("crio-cgroupfs", IN_POD),
        ("docker-systemd", IN_POD),
        ("docker-cgroupfs", IN_POD),
        ("kind-systemd", IN_POD),
        ("kind-cgroupfs", IN_POD),
        ("private-namespace", IN_POD),
        ("private-namespace-cgroupfs", IN_POD),
        ("private-namespace-same-pod", ProcessPlace("", CONTAINER)),
        ("static-pod-systemd", ProcessPlace(STATIC, CONTAINER)),
        ("static-pod-cgroupfs", ProcessPlace(STATIC, CONTAINER)),
        ("docker-in-pod", IN_POD),
        ("host-service", HOST),
        ("host-docker", ProcessPlace("", CONTAINER)),
        ("host-user-session", HOST),
        ("own-private-namespace", HOST),
    ],
)
def test_place_of_each_runtime(name: str, expected) -> None:
    assert parse_cgroup((DATA / f"{name}.txt").read_text()) == expected


def test_every_recorded_form_is_tested() -> None:
    names = {path.stem for path in DATA.glob("*.txt")}
    marks = test_place_of_each_runtime.pytestmark[0].args[1]
    assert names == {name for name, _ in marks}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "0::",
        f"0::/kubepods/pod{UID[:-1]}/{CONTAINER[:-1]}",
        f"0::/tripod{UID}",
        "0::/kubepods/podinfo/x",
    ],
)
def test_text_that_names_no_pod_is_the_hosts(text: str) -> None:
    assert parse_cgroup(text) == HOST


def test_blank_and_parenthesis_in_a_name_do_not_move_the_start_time() -> None:
    assert parse_start_ticks((DATA / "host" / "4242" / "stat").read_text()) == 918273


@pytest.mark.parametrize("text", ["", "12 (x) S 1 2", "no stat", "1 (x) " + "a " * 40])
def test_other_text_has_no_start_time(text: str) -> None:
    assert parse_start_ticks(text) is None


@pytest.fixture
def proc(tmp_path: Path):
    return Path(shutil.copytree(DATA / "host", tmp_path / "proc"))


def test_process_is_read_once(proc) -> None:
    table = ProcessTable(proc)
    assert table.place(4242) == IN_POD
    shutil.rmtree(proc / "4242")
    assert table.place(4242) == IN_POD


def test_reused_number_is_read_again(proc) -> None:
    table = ProcessTable(proc)
    table.place(4242)
    stat = proc / "4242" / "stat"
    stat.write_text(stat.read_text().replace("918273", "918999"))
    (proc / "4242" / "cgroup").write_text("0::/system.slice/cron.service\n")
    assert table.place(4242) == IN_POD
    table.forget_ended()
    assert table.place(4242) == HOST


def test_same_process_stays_known(proc) -> None:
    table = ProcessTable(proc)
    table.place(4242)
    table.forget_ended()
    assert len(table) == 1


def test_ended_process_is_forgotten(proc) -> None:
    table = ProcessTable(proc)
    table.place(4242)
    shutil.rmtree(proc / "4242")
    table.forget_ended()
    with pytest.raises(FileNotFoundError):
        table.place(4242)


def test_processes_that_left_the_gpu_are_forgotten(proc) -> None:
    table = ProcessTable(proc)
    table.place(4242)
    table.place(977)
    table.keep_only(frozenset({977}))
    assert len(table) == 1


def test_memory_of_processes_is_bounded(proc) -> None:
    table = ProcessTable(proc, capacity=2)
    for pid in (1, 2, 977, 4242):
        table.place(pid)
    assert len(table) == 2


def test_own_process_can_be_read_in_the_real_proc() -> None:
    ProcessTable(Path("/proc")).place(os.getpid())


@pytest.mark.parametrize(
    ("tree", "expected"),
    [("host", True), ("kind", True), ("pod", False), ("shared-pod", False), ("nowhere", False)],
)
def test_whether_host_processes_are_seen(tree: str, expected: bool) -> None:
    assert sees_host_processes(DATA / tree) is expected
