import pytest

from gpuscale.agent.attribution.processes.shares import (
    ContainerShare,
    split_utilisation,
    split_whole,
    standard_error,
)
from gpuscale.agent.gpu.owners import Attribution, ContainerRef, Unattributed
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading, ProcessReading

GPU = GpuIdentity(0, "GPU-a", "00000000:1A:00.0", "NVIDIA H200")
BERT, TUNE, IDLE = (ContainerRef("ml", name, "main") for name in ("bert-0", "tune-0", "idle-0"))
SHARED = (BERT, TUNE, IDLE)


def process(pid, sm_util, memory_mib=1000, name="python", looks=None):
    return ProcessReading(pid, name, sm_util, 0, 0, 0, memory_mib, looks)


def reading(util, *processes, used_mib=10_000):
    values = {"DCGM_FI_DEV_GPU_UTIL": util, "DCGM_FI_DEV_FB_USED": used_mib}
    known = {key: value for key, value in values.items() if value is not None}
    return GpuReading(GPU, 0, known, {}, processes)


def owned(owners, missing=(), **by_pid):
    pids = {int(key.removeprefix("p")): owner for key, owner in by_pid.items()}
    return Attribution({"GPU-a": owners}, pids, missing)


def test_device_is_split_in_proportion_to_the_processes() -> None:
    # 90 % in the proportions 60 : 30 : 0 is 60 : 30 : 0; memory is the processes' own, the rest nobody's.
    found = split_utilisation(
        reading(90, process(1, 60, 4000), process(2, 30, 2000), process(3, 0, 500)),
        owned(SHARED, p1=BERT, p2=TUNE, p3=IDLE),
    )
    assert found == (
        ContainerShare(BERT, 60, 4000),
        ContainerShare(TUNE, 30, 2000),
        ContainerShare(IDLE, 0, 500),
        ContainerShare(None, 0, 3500),
    )


def test_processes_that_say_more_than_the_device_are_scaled_down() -> None:
    # 50 % in the proportions 60 : 40 is 30 : 20.
    found = split_utilisation(
        reading(50, process(1, 60), process(2, 40), used_mib=None), owned(SHARED, p1=BERT, p2=TUNE)
    )
    assert [(each.container, each.sm_util) for each in found] == [(BERT, 30), (TUNE, 20), (IDLE, 0)]


def test_what_rounding_leaves_goes_to_the_largest_remainder() -> None:
    # 100 in the proportions 1 : 1 : 1 leaves 1 over; equal remainders go to the first.
    assert split_whole(100, {"a": 1, "b": 1, "c": 1}) == {"a": 34, "b": 33, "c": 33}
    # 10 in the proportions 5 : 1 is 8.33 : 1.67.
    assert split_whole(10, {"a": 5, "b": 1}) == {"a": 8, "b": 2}


def test_several_processes_of_a_container_are_one_share() -> None:
    found = split_utilisation(
        reading(40, process(1, 10, 100), process(2, 10, 200), process(3, 20, 300), used_mib=600),
        owned((BERT, TUNE), p1=BERT, p2=BERT, p3=TUNE),
    )
    assert found == (ContainerShare(BERT, 20, 300), ContainerShare(TUNE, 20, 300))


def test_process_without_owner_is_its_own_share() -> None:
    found = split_utilisation(
        reading(40, process(1, 30, 700), process(9, 10, 200), used_mib=900),
        owned((BERT, TUNE), p1=BERT),
    )
    assert found == (
        ContainerShare(BERT, 30, 700),
        ContainerShare(TUNE, 0, 0),
        ContainerShare(None, 10, 200),
    )


def test_container_is_not_called_idle_while_a_process_may_be_anybodys() -> None:
    # Without the API server, processes of pods that share a GPU can't be told apart.
    attribution = Attribution({"GPU-a": (BERT, TUNE)}, {1: BERT}, unknown_pids=frozenset({9}))
    found = split_utilisation(
        reading(40, process(1, 30, 700), process(9, 10, 200), used_mib=900), attribution
    )
    assert found == (ContainerShare(BERT, 30, 700), ContainerShare(None, 10, 200))


def test_container_that_was_not_given_the_gpu_has_a_share_too() -> None:
    found = split_utilisation(
        reading(40, process(1, 40, 900), used_mib=900), owned((TUNE,), p1=BERT)
    )
    assert found == (ContainerShare(TUNE, 0, 0), ContainerShare(BERT, 40, 900))


def test_idle_gpu_has_shares_of_zero() -> None:
    found = split_utilisation(reading(0, used_mib=0), owned((BERT, TUNE)))
    assert found == (ContainerShare(BERT, 0, 0), ContainerShare(TUNE, 0, 0))


def test_no_shares_without_the_devices_utilisation() -> None:
    assert split_utilisation(reading(None, process(1, 60)), owned(SHARED, p1=BERT)) == ()


def test_busy_shared_gpu_without_a_cause_has_no_shares() -> None:
    assert split_utilisation(reading(90), owned(SHARED)) == ()
    assert split_utilisation(reading(90, process(1, 0)), owned(SHARED, p1=BERT)) == ()


def test_busy_gpu_of_one_container_is_all_its_own() -> None:
    assert split_utilisation(reading(90), owned((BERT,))) == (ContainerShare(BERT, 90, 10_000),)
    found = split_utilisation(reading(90, process(1, 0)), owned((BERT,), p1=BERT))
    assert found == (ContainerShare(BERT, 90, 10_000),)


def test_another_process_on_the_gpu_of_one_container_makes_the_cause_unknown() -> None:
    assert split_utilisation(reading(90, process(9, 0)), owned((BERT,))) == ()


def test_mps_server_hides_which_client_was_busy() -> None:
    mps = process(1, 80, name="nvidia-cuda-mps-server")
    assert split_utilisation(reading(80, mps, process(2, 0)), owned(SHARED, p2=TUNE)) == ()


def test_nothing_is_called_idle_while_processes_are_hidden() -> None:
    hidden = (Unattributed("host_pid_off"),)
    assert split_utilisation(reading(0), owned(SHARED, hidden)) == ()
    assert split_utilisation(reading(70), owned((BERT,), hidden)) == (
        ContainerShare(BERT, 70, 10_000),
    )


def test_no_shares_where_a_process_does_not_tell_what_it_did() -> None:
    processes = (process(1, 60), process(2, None))
    assert split_utilisation(reading(90, *processes), owned(SHARED, p1=BERT, p2=TUNE)) == ()


def test_memory_is_unknown_where_one_process_does_not_tell() -> None:
    found = split_utilisation(
        reading(40, process(1, 30, None), process(2, 10, 5)), owned((BERT, TUNE), p1=BERT, p2=TUNE)
    )
    assert found == (ContainerShare(BERT, 30, None), ContainerShare(TUNE, 10, None))


def test_memory_beyond_the_devices_is_scaled_down() -> None:
    # 900 MiB in the proportions 800 : 400 is 600 : 300.
    found = split_utilisation(
        reading(40, process(1, 30, 800), process(2, 10, 400), used_mib=900),
        owned((BERT, TUNE), p1=BERT, p2=TUNE),
    )
    assert found == (ContainerShare(BERT, 30, 600), ContainerShare(TUNE, 10, 300))


def test_lost_gpu_has_no_shares() -> None:
    assert split_utilisation(GpuReading(GPU, 0, {}, {}), owned(SHARED)) == ()


@pytest.mark.parametrize("util", [0, 1, 37, 100])
def test_gpu_that_nobody_was_given_is_nobodys(util: int) -> None:
    found = split_utilisation(reading(util, process(9, 50, 10), used_mib=10), Attribution())
    assert found == (ContainerShare(None, util, 10),)


def test_sampled_use_is_told_as_it_is_with_its_error() -> None:
    # The GPU is at 90 % now; over the window of the looks it was at 20 + 40.
    found = split_utilisation(
        reading(90, process(1, 20, looks=50), process(2, 40, looks=50)),
        owned(SHARED, p1=BERT, p2=TUNE),
    )
    assert [(each.container, each.sm_util) for each in found[:3]] == [
        (BERT, 20),
        (TUNE, 40),
        (IDLE, 0),
    ]
    # (20/60 * 50 + 0.5) / 51 = 0.337; 60 * sqrt(0.337 * 0.663 / 51) = 3.97
    assert [each.standard_error for each in found[:3]] == [
        pytest.approx(3.97, abs=0.01),
        pytest.approx(3.97, abs=0.01),
        None,
    ]


def test_switching_is_told_where_use_is_sampled_and_two_use_the_gpu() -> None:
    found = split_utilisation(
        reading(90, process(1, 40, looks=50), process(2, 40, looks=50)),
        owned(SHARED, p1=BERT, p2=TUNE),
    )
    # Two thirds of the busy time are contended, of which 0.11 are switches: 40 * 2/3 * 0.11 = 2.93.
    assert [each.switching_percent for each in found[:3]] == [
        pytest.approx(2.93, abs=0.01),
        pytest.approx(2.93, abs=0.01),
        None,
    ]


def test_switching_is_not_told_where_use_is_counted() -> None:
    found = split_utilisation(
        reading(80, process(1, 40), process(2, 40)), owned(SHARED, p1=BERT, p2=TUNE)
    )
    assert {each.switching_percent for each in found} == {None}


def test_young_process_has_the_error_of_its_own_looks() -> None:
    found = split_utilisation(
        reading(90, process(1, 60, looks=50), process(2, 30, looks=5)),
        owned((BERT, TUNE), p1=BERT, p2=TUNE),
    )
    # (30/90 * 5 + 0.5) / 6 = 0.361; 90 * sqrt(0.361 * 0.639 / 6) = 17.6
    assert found[1].standard_error == pytest.approx(17.65, abs=0.05)


def test_sampled_use_of_one_container_alone_is_the_devices_own() -> None:
    found = split_utilisation(
        reading(70, process(1, 30, looks=50), process(2, 30, looks=50)),
        owned((BERT, TUNE), p1=BERT, p2=BERT),
    )
    assert [(each.container, each.sm_util, each.standard_error) for each in found[:2]] == [
        (BERT, 70, None),
        (TUNE, 0, None),
    ]


def test_error_is_never_zero_while_others_may_not_have_been_seen() -> None:
    assert standard_error(80, 80, 50) > 0
    assert standard_error(0, 80, 50) == pytest.approx(standard_error(80, 80, 50))
    assert standard_error(0, 0, 50) == 0
