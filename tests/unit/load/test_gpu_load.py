"""`gpuscale load gpu` on a stand-in for libcuda, which checks each call as the driver does."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.load.gpu.counted import Counted
from gpuscale.load.gpu.driver import Device
from gpuscale.load.gpu.holding import GpuLook, HeldGpu, _Share, hold
from gpuscale.load.gpu.pacing import PERIOD_S
from gpuscale.load.gpu.plan import ChosenGpu, GpuPlan, choose
from gpuscale.load.gpu.result import gpu_timeline
from gpuscale.load.shapes import PERCENT, constant, ramp, sine, steps
from gpuscale.load.timeline.types import TimelineMark, Track
from gpuscale.load.watching.notes import Watched

MIB = 1 << 20
FIRST = "00010203-0405-0607-0809-0a0b0c0d0e0f"
SECOND = "10111213-1415-1617-1819-1a1b1c1d1e1f"


def start(cuda, *arguments, **environment):
    command = [sys.executable, "-m", "gpuscale.cli.main", "load", "gpu", *arguments]
    return subprocess.Popen(
        command,
        env={**cuda.environment, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def load(cuda, *arguments, **environment):
    """Return the exit code, the document and what was said."""
    with start(cuda, *arguments, "-o", "json", **environment) as process:
        out, said = process.communicate(timeout=90)
    return process.returncode, json.loads(out) if out else None, said


def test_memory_and_bursts_are_what_was_asked_for_and_nothing_is_left(cuda) -> None:
    _, document, said = load(cuda, "--util=40", "--memory=256MiB", "--for=1s", "--sms=50")
    assert document is not None, said
    runs = cuda.runs()
    # Every burst is 40 % of a period on 66 of 132 multiprocessors, and at most one begins in each period.
    assert {(run.length, run.blocks) for run in runs} == {(round(PERIOD_S * 0.4e9), 66)}
    assert 0 < len(runs) <= 1 / PERIOD_S + 1
    bursts = document["gpus"][0]["bursts"]
    assert bursts["launched"] == len(runs)
    assert cuda.calls("HELD") == [f"HELD {256 * MIB}"]
    assert document["gpus"][0]["memoryBytes"] == {"wanted": 256 * MIB, "allocated": 256 * MIB}
    assert document["gpus"][0]["uuid"] == FIRST
    assert cuda.calls("LEFT") == []
    assert "no use by NVML; corrected by what our own kernels take" in said


def test_processes_take_turns_on_a_gpu_and_share_the_memory(cuda) -> None:
    _, document, said = load(cuda, "--util=60", "--memory=300MiB", "--for=1s", "--processes=3")
    assert document is not None, said
    assert cuda.calls("HELD") == [f"HELD {100 * MIB}"] * 3
    runs = cuda.runs()
    assert len({run.pid for run in runs}) == 3
    assert {run.length for run in runs} == {round(PERIOD_S * 0.2e9)}
    assert cuda.calls("LEFT") == []


def test_gpus_are_chosen_by_number_uuid_and_all(cuda) -> None:
    def loaded(which):
        _, document, said = load(cuda, "--util=5", "--for=0.2s", f"--gpu={which}", STANDIN_GPUS="2")
        return [gpu["uuid"] for gpu in document["gpus"]] if document else said

    assert loaded("1") == [SECOND]
    assert loaded(f"GPU-{SECOND}") == [SECOND]
    assert loaded("all") == [FIRST, SECOND]
    assert "found '2', expected all or one of: 0 (Stand-in 0, 00010203" in loaded("2")


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "said"),
    [
        (["--util=50"], {}, 2, "found no --for, expected how long the load lasts"),
        ([], {}, 2, "found no load, expected one of --util"),
        (["--util=50", "--ramp=1..2", "--for=1s"], {}, 2, "found --util and --ramp, expected one"),
        (["--util=150", "--for=1s"], {}, 2, "found 150, expected 0 to 100 percent of the time"),
        (["--steps=5@1s,x@1s"], {}, 2, "found 'x' in 'x@1s', expected percent of the time"),
        (["--util=5", "--for=1s", "--memory=lots"], {}, 2, "found 'lots', expected a size"),
        (["--util=5", "--for=8d"], {}, 2, "expected a week at most"),
        (["--util=5", "--for=1s"], {"STANDIN_GPUS": "0"}, 1, "no GPU that this process may use"),
        (["--util=5", "--for=1s"], {"STANDIN_FAIL": "cuInit:803"}, 1, "of different releases"),
        (["--util=5", "--for=1s"], {"STANDIN_PROHIBITED": "1"}, 1, "allows no process"),
        (
            ["--util=5", "--for=1s", "--memory=2GiB"], {}, 1,
            "found 1.00 GiB of free memory, expected 2.00 GiB; ask for less",
        ),
        (
            ["--util=5", "--for=1s"], {"STANDIN_FAIL": "cuLaunchKernel:700"}, 1,
            "the NVIDIA driver reported an error: error 700 of the stand-in (cuLaunchKernel: 700)",
        ),
        (
            ["--util=5", "--for=1s"], {"STANDIN_FAIL": "cuModuleLoadData:222"}, 1,
            "the driver is too old for the kernel",
        ),
    ],
)  # fmt: skip
def test_what_can_not_be_done_is_said_and_leaves_nothing(
    cuda, arguments, environment, code, said
) -> None:
    found = load(cuda, *arguments, **environment)
    assert (found[0], said in found[2]) == (code, True), found
    assert "Traceback" not in found[2]
    assert cuda.calls("LEFT") == []


def test_without_a_driver_the_command_says_what_to_install(cuda) -> None:
    found = load(cuda, "--util=5", "--for=1s", LD_LIBRARY_PATH="")
    if "found no libcuda.so.1" not in found[2]:
        pytest.skip("there is a driver on this machine")
    assert found[0] == 1
    assert "install the driver, or in a container use NVIDIA's container runtime" in found[2]


def wait_for_run(cuda, process):
    for _ in range(600):
        if cuda.runs():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError("no kernel was launched")


def gone(pid) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_load_frees_everything_and_reports(cuda, number) -> None:
    with start(cuda, "--util=50", "--memory=64MiB", "--for=10m", "--output=json") as process:
        wait_for_run(cuda, process)
        process.send_signal(number)
        out, said = process.communicate(timeout=60)
    assert process.returncode in (0, 1), said
    assert json.loads(out)["gpus"][0]["bursts"]["launched"] == len(cuda.runs())
    assert cuda.calls("LEFT") == []
    assert len(cuda.calls("cuMemFree_v2")) == 1


def test_a_killed_load_leaves_no_process_that_holds_the_gpu(cuda) -> None:
    with start(cuda, "--util=50", "--memory=64MiB", "--for=10m", "--processes=2") as process:
        wait_for_run(cuda, process)
        workers = {run.pid for run in cuda.runs()}
        process.kill()
        process.wait(30)
    for _ in range(300):
        if all(gone(pid) for pid in workers):
            break
        time.sleep(0.1)
    assert all(gone(pid) for pid in workers)
    assert cuda.calls("LEFT") == []


def test_a_killed_worker_ends_the_load_with_a_reason(cuda) -> None:
    with start(cuda, "--util=50", "--for=10m", "--processes=2") as process:
        wait_for_run(cuda, process)
        os.kill(cuda.runs()[0].pid, signal.SIGKILL)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Stand-in 0: a process of the load ended with -9" in said


def test_an_hpa_that_can_not_be_watched_is_no_load(cuda, tmp_path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )
    )
    options = ("--util=5", "--for=1s", f"--kubeconfig={kubeconfig}")
    found = load(cuda, *options, "--watch-hpa=bert")
    assert (found[0], found[1]) == (2, None)
    assert "the API server at http://127.0.0.1:9 can't be reached" in found[2]
    found = load(cuda, *options)
    assert (found[0], "expected --watch-hpa beside them" in found[2]) == (2, True)
    assert cuda.runs() == []


def test_what_was_watched_stands_beside_the_load() -> None:
    held = HeldGpu(ChosenGpu(FIRST, "Stand-in 0", {}), [GpuLook(1_500, 60.0, 59.0, None, None)])
    held.started_ms, held.ended_ms = 1_000, 1_500
    replicas = Track("bert", "pods", "replicas", ((1_200, 2.0),))
    mark = TimelineMark(1_200, "SuccessfulRescale", "HorizontalPodAutoscaler/bert", "New size: 2")
    timeline = gpu_timeline(
        GpuPlan(constant(60), 0.5, shape="util 60"), [held], Watched((replicas,), (mark,))
    )
    # NVML and memory could not be measured: they are no lines at all.
    assert [track.name for track in timeline.tracks] == ["wanted", "own", "bert"]
    assert timeline.marks == (mark,)


def test_profiles_are_means_of_their_time() -> None:
    def plan(load, duration_s):
        return GpuPlan(load, duration_s)

    assert plan(constant(60), 10).wanted(0, 0.5) == 60
    assert plan(constant(60), 10).wanted(9.5, 10.5) == 30  # half of it is over
    assert plan(ramp("0..100", 10, PERCENT), 10).wanted(2, 4) == pytest.approx(30)
    load, length_s = steps("20@1s,80@1s", PERCENT)
    assert (length_s, plan(load, 2).wanted(0.5, 1.5)) == (2, 50)
    # A sine from 20 to 80 in 8 s: its mean over a whole period is 50, over the first half 50 + 30 * 2 / pi.
    wave = plan(sine("20..80,8s", PERCENT), 8)
    assert wave.wanted(0, 8) == pytest.approx(50)
    assert wave.wanted(0, 4) == pytest.approx(50 + 60 / 3.141592653589793)


@pytest.mark.parametrize("text", ["20..80", "80..20,5m", "20..120,5m", "20..80,0s", "20-80,5m"])
def test_other_waves_are_refused(text) -> None:
    with pytest.raises(ValueError, match="expected"):
        sine(text, PERCENT)


def test_a_mig_instance_that_is_not_shown_is_asked_for_unless_the_user_chose_others() -> None:
    shown = (Device(0, "NVIDIA H200 MIG 1g.18gb", "aaaa-bb", "0000:1A:00.0", 16),)
    (chosen,) = choose("MIG-cccc-dd", shown, {})
    assert (chosen.uuid, chosen.environment) == ("cccc-dd", {"CUDA_VISIBLE_DEVICES": "MIG-cccc-dd"})
    (chosen,) = choose("MIG-aaaa-bb", shown, {"CUDA_VISIBLE_DEVICES": "MIG-aaaa-bb"})
    assert chosen.environment == {}
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES=MIG-aaaa-bb hides others"):
        choose("MIG-cccc-dd", shown, {"CUDA_VISIBLE_DEVICES": "MIG-aaaa-bb"})
    for text in ("", "-1", "GPU-", "ff", "99999999"):
        with pytest.raises(UsageError, match="expected all or one of"):
            choose(text, shown, {})


def test_an_unknown_library_is_named() -> None:
    from gpuscale.load.gpu.driver import CudaDriver

    with pytest.raises(UnavailableError, match=r"found no libcuda-of-nobody\.so"):
        CudaDriver("libcuda-of-nobody.so")


class Counting:
    """Counts as NVML would on the stand-in: what is launched and 10 points more, 500 MiB for each context.

    Args:
        cuda: whose log says what is launched and held.
        others: bytes that somebody else has taken by each look.
    """

    def __init__(self, cuda, others=(0,)) -> None:
        self._cuda = cuda
        self._others = list(others)
        self._now = Counted(None, 0, ())

    def refresh(self) -> None:
        runs = self._cuda.runs()
        contexts = len(self._cuda.calls("cuDevicePrimaryCtxRetain"))
        held = sum(int(words.split()[1]) for words in self._cuda.calls("HELD"))
        others = self._others.pop(0) if len(self._others) > 1 else self._others[0]
        processes = max(1, len({run.pid for run in runs}))
        percent = 100 * processes * runs[-1].length / 1e9 / PERIOD_S + 10 if runs else 0.0
        self._now = Counted(percent, others + contexts * 500 * MIB + held, (4711,))

    def look(self, _uuid):
        return self._now

    def close(self) -> None:
        """Nothing is open."""


async def counted_load(cuda, monkeypatch, counter, **plan):
    """Run a load in this process, whose children find the stand-in; return what was held and noted."""
    for name in ("LD_LIBRARY_PATH", "STANDIN_LOG"):
        monkeypatch.setenv(name, cuda.environment[name])
    monkeypatch.setenv("STANDIN_FREE_MIB", "8192")
    notes = []
    counter.refresh()
    held = await hold(
        GpuPlan(constant(60), **plan),
        [ChosenGpu(FIRST, "Stand-in 0", {})],
        counter,
        asyncio.Event(),
        lambda _: None,
        notes.append,
    )
    return held[0], notes


async def test_what_the_driver_counts_corrects_the_bursts_and_contexts_count_as_memory(
    cuda, monkeypatch
) -> None:
    held, notes = await counted_load(
        cuda, monkeypatch, Counting(cuda), duration_s=8.0, memory_bytes=2048 * MIB, processes=2
    )
    # Two contexts take 1000 of the 2048 MiB; each process holds half of the rest.
    assert cuda.calls("HELD") == [f"HELD {524 * MIB}"] * 2
    assert held.used_bytes == 2048 * MIB
    # Counted are 10 points more than are launched, so 50 have to be. Each look from the third on takes a
    # quarter of the error; the seventeenth of 8 s leaves 10 * 0.75 ** 14 = 0.2 points.
    percent = [2 * 100 * run.length / 1e9 / PERIOD_S for run in cuda.runs()]
    assert percent[0] == pytest.approx(60, abs=0.01)
    assert percent[-1] == pytest.approx(50, abs=1)
    assert notes == ["Stand-in 0: 1 other process on it; what they use counts as held"]


async def test_memory_that_others_take_meanwhile_is_not_counted_as_ours(cuda, monkeypatch) -> None:
    others = Counting(cuda, others=(0, 9 << 30))
    held, notes = await counted_load(
        cuda, monkeypatch, others, duration_s=0.3, memory_bytes=600 * MIB
    )
    assert cuda.calls("HELD") == [f"HELD {600 * MIB}"]
    assert held.allocated_bytes == 600 * MIB
    assert "others' memory changed meanwhile; what contexts take is not counted" in notes[-1]


async def test_contexts_alone_may_take_more_than_was_asked_for(cuda, monkeypatch) -> None:
    held, notes = await counted_load(
        cuda, monkeypatch, Counting(cuda), duration_s=0.3, memory_bytes=300 * MIB
    )
    assert (held.allocated_bytes, cuda.calls("HELD")) == (0, [])
    assert "1 context with 500 MiB, more than asked for" in notes[-1]


class Uncounting(Counting):
    """Counts nothing, as on a MIG instance."""

    def refresh(self) -> None:
        self._now = Counted(None, None, (), "not supported by this GPU or driver")


async def test_without_nvml_bursts_that_could_not_be_launched_are_made_up_for(
    cuda, monkeypatch
) -> None:
    monkeypatch.setattr(_Share, "own_percent", lambda _: 40.0)
    _, notes = await counted_load(cuda, monkeypatch, Uncounting(cuda), duration_s=7.0)
    percent = [100 * run.length / 1e9 / PERIOD_S for run in cuda.runs()]
    # 60 are wanted and 40 seen: a quarter of 20 points is added at each look, and never more than 20 in all.
    assert percent[0] == pytest.approx(60, abs=0.01)
    assert percent[-1] == pytest.approx(80, abs=0.01)
    assert "corrected by what our own kernels take: not supported" in notes[0]
