"""How true the shares of containers are on a real NVIDIA GPU, against work that the loads count themselves.

    PYTHONPATH=src python3 tests/gpu/shares.py          # one NVIDIA GPU and PyTorch; four minutes
    PYTHONPATH=src python3 tests/gpu/shares.py 110      # nine minutes: the mixes at random for 110 s each
    PYTHONPATH=src python3 tests/gpu/shares.py eleven 0 1   # GPUs 0 and 1: eleven containers on both at once

Processes do bursts of matrix products of random length at random times on GPU 0. Each counts its work in
seconds that the same products take alone, which is its true use. Beside them the agent's own reader and
`split_utilisation` are asked once a second, each process as a container of its own, and the driver's looks
and the profiling counters are kept. `share_scores` says what the scores are.

The result goes to benchmarks/results, named after the GPU, or where the variable OUT says, with all that was
seen in shares_raw.json.gz beside it.
"""

import ctypes
import gzip
import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

from share_scores import (  # type: ignore[import-not-found]  # beside this script
    WINDOW_S,
    after_join,
    summary,
    true_percent,
)

BURST_S = 0.015
PERIOD_S = 0.1
MIXES = {
    "50:50": (40, "random", (40, 40)),
    "70:30": (40, "random", (56, 24)),
    "90:5:5": (40, "random", (75, 4, 4)),
    "40:30:20:10": (40, "random", (32, 24, 16, 8)),
    "both always busy": (20, "full", (100, 100)),
    "every 100 ms": (20, "periodic", (40, 40)),
}
ELEVEN = ((24, 16, 12, 10, 8, 6), (30, 20, 14, 9, 5))
"""The uses of the containers of two GPUs, which are nearly as busy as they can be."""
ELEVEN_SECONDS = 60
JOIN = (56, 24)
JOIN_AT_S, JOINED_S, JOIN_SECONDS = 12.0, 18.0, 38.0


def say(text) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def work() -> None:
    """Be one load: say how long a product takes, then do as each line on the standard input says."""
    import torch

    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    b, out = torch.randn_like(a), torch.empty_like(a)

    def products(count):
        for _ in range(count):
            torch.mm(a, b, out=out)
        torch.cuda.synchronize()

    products(400)
    started = time.monotonic()
    products(4000)
    say(json.dumps({"product_s": (time.monotonic() - started) / 4000}))
    for line in sys.stdin:
        given = json.loads(line)
        one_s, use = given["product_s"], given["use"] / 100
        rng, done = random.Random(given["seed"]), []
        due, end = time.monotonic(), time.monotonic() + given["seconds"]
        while time.monotonic() < end:
            length_s = 0.005
            if given["kind"] == "random":
                due += rng.expovariate(use / BURST_S)
                length_s = rng.expovariate(1 / BURST_S)
            elif given["kind"] == "periodic":
                due += PERIOD_S
                length_s = use * PERIOD_S
            time.sleep(max(0.0, min(due, end) - time.monotonic()))
            count = max(1, round(length_s / one_s))
            began = time.time()
            products(count)
            done.append((began, time.time(), count * one_s))
        say(json.dumps(done))


class Load:
    """One process and the work that it has counted."""

    def __init__(self, gpu=0) -> None:
        command = [sys.executable, __file__, "--work"]
        self.gpu = gpu
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(gpu)},
        )
        self.product_s = json.loads(self.process.stdout.readline())["product_s"]
        self.done = []
        self.began = self.ended = 0.0

    def go(self, **given) -> None:
        self.began, self.done = time.time(), []
        self.ended = self.began + given["seconds"]
        print(json.dumps(given), file=self.process.stdin, flush=True)
        self.reading = threading.Thread(target=self._read)
        self.reading.start()

    def _read(self) -> None:
        self.done = json.loads(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait(20)


class Watch(threading.Thread):
    """Asks the agent's reader once a second, and keeps the driver's looks and the profiling counters.

    All loads are on one GPU.
    """

    def __init__(self, loads) -> None:
        super().__init__(daemon=True)
        self.loads, self.gpu, self.is_on = loads, loads[0].gpu, True
        self.told, self.looks, self.rates = [], [], []

    def run(self) -> None:
        import pynvml

        from gpuscale.agent.attribution.processes.shares import split_utilisation
        from gpuscale.agent.gpu.owners import Attribution, ContainerRef
        from gpuscale.agent.nvml.reader import NvmlReader

        fields = {
            "DCGM_FI_DEV_GPU_UTIL",
            *(f"DCGM_FI_PROF_{name}" for name in ("GR_ENGINE_ACTIVE", "SM_ACTIVE", "DRAM_ACTIVE")),
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        }
        reader = NvmlReader(fields=frozenset(fields))
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(self.gpu)
        last_us, tick, due = time.time_ns() // 1000, 0, time.monotonic()
        while self.is_on:
            now_us = time.time_ns() // 1000
            found = looks_since(pynvml, handle, last_us)
            self.looks.append((now_us, found))
            last_us = max([each[1] for each in found], default=max(last_us, now_us - 1_000_000))
            if tick % 10 == 0:
                reading = reader.read(time.time_ns() // 1_000_000)[self.gpu]
                refs = {
                    each.process.pid: ContainerRef("ns", str(n), "m")
                    for n, each in enumerate(self.loads)
                }
                owned = Attribution({reading.gpu.uuid: tuple(refs.values())}, refs)
                shares = split_utilisation(reading, owned)
                told = {
                    int(each.container.pod): (
                        each.sm_util,
                        each.standard_error,
                        each.switching_percent,
                    )
                    for each in shares
                    if each.container
                }
                self.told.append((time.time(), dict(reading.values), told))
            tick += 1
            due += 0.1
            time.sleep(max(0.0, due - time.monotonic()))
        reader.close()


def looks_since(library, handle, since_us):
    """Return (PID, microseconds, SM %) of what the driver's looks found after a time."""
    count = ctypes.c_uint(256)
    buffer = (library.c_nvmlProcessUtilizationSample_t * 256)()
    code = library.nvmlLib.nvmlDeviceGetProcessUtilization(
        handle, buffer, ctypes.byref(count), ctypes.c_ulonglong(since_us)
    )
    if code:
        return []
    return [(each.pid, each.timeStamp, each.smUtil) for each in buffer[: count.value]]


def run_mix(name, loads, product_s, seconds, kind, uses):
    """Run one mix, and return what was seen of it."""
    active = loads[: len(uses)]
    watch = Watch(active)
    watch.start()
    for n, (load, use) in enumerate(zip(active, uses, strict=True)):
        load.go(seconds=seconds, use=use, seed=f"{name}{n}", kind=kind, product_s=product_s)
    return finish(name, watch, active)


def run_join(loads, product_s):
    """Run one load that another process, which is new to the GPU, joins and leaves."""
    active = [loads[0]]
    watch = Watch(active)
    watch.start()
    active[0].go(seconds=JOIN_SECONDS, use=JOIN[0], seed="j0", kind="random", product_s=product_s)
    time.sleep(JOIN_AT_S)
    new = Load()
    active.append(new)
    new.go(seconds=JOINED_S, use=JOIN[1], seed="j1", kind="random", product_s=product_s)
    new.reading.join()
    new.stop()
    return finish("join", watch, active)


def finish(name, watch, active):
    for load in active:
        load.reading.join()
    time.sleep(0.5)
    watch.is_on = False
    watch.join()
    for each in active:
        say(f"{name}: true {true_percent(each.done, each.began, each.ended):.1f} %")
    return {
        "name": name,
        "loads": [
            {"pid": each.process.pid, "began": each.began, "ended": each.ended, "done": each.done}
            for each in active
        ],
        "told": watch.told,
        "looks": watch.looks,
    }


def main(random_seconds: int | None) -> None:
    """Run every mix, and write what came of it."""
    loads = [Load()]
    product_s = loads[0].product_s
    say(f"a product takes {product_s * 1e6:.1f} us")
    loads += [Load() for _ in range(3)]
    mixes = [
        run_mix(
            name,
            loads,
            product_s,
            random_seconds if random_seconds and kind == "random" else seconds,
            kind,
            uses,
        )
        for name, (seconds, kind, uses) in MIXES.items()
    ]
    joined = [run_join(loads, product_s)]
    for load in loads:
        load.stop()
    result = {
        "benchmark": "shares_on_gpu",
        "window_s": WINDOW_S,
        "seconds": {
            each["name"]: round(each["loads"][0]["ended"] - each["loads"][0]["began"])
            for each in mixes
        },
        "mixes": [summary(each) for each in mixes],
        "joined": {
            "columns": ["s since", "served", "true", "served, the other", "true, the other"],
            "runs": [after_join(each) for each in joined],
        },
    }
    write(f"shares_1x{model()}", result, mixes + joined)


def eleven(gpus) -> None:
    """Run eleven containers on two GPUs at once, and write what came of it."""
    loads = {gpu: [Load(gpu) for _ in uses] for gpu, uses in zip(gpus, ELEVEN, strict=True)}
    seen = {}

    def run(gpu, uses):
        mine = loads[gpu]
        name = f"{len(mine)} of eleven"
        seen[gpu] = run_mix(name, mine, mine[0].product_s, ELEVEN_SECONDS, "random", uses)

    threads = [threading.Thread(target=run, args=each) for each in zip(gpus, ELEVEN, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for load in itertools.chain(*loads.values()):
        load.stop()
    result = {
        "benchmark": "shares_on_two_gpus",
        "window_s": WINDOW_S,
        "seconds": ELEVEN_SECONDS,
        "mixes": [summary(seen[gpu]) for gpu in gpus],
    }
    write(f"shares_2x{model()}", result, list(seen.values()))


def write(name, result, raw) -> None:
    """Write a result, and what was seen beside it where OUT says."""
    out = Path(os.environ.get("OUT") or Path(__file__).parents[2] / "benchmarks" / "results")
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    if "OUT" in os.environ:
        with gzip.open(out / f"{name}_raw.json.gz", "wt") as file:
            file.write(json.dumps(raw))
    say(json.dumps(result))


def model():
    """Return the GPU's model as result files name it: h200 of NVIDIA H200, h100 of NVIDIA H100 80GB HBM3."""
    import pynvml

    pynvml.nvmlInit()
    name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    return name.removeprefix("NVIDIA ").split()[0].lower()


if __name__ == "__main__":
    if sys.argv[1:] == ["--work"]:
        work()
    elif sys.argv[1:2] == ["eleven"]:
        eleven([int(each) for each in sys.argv[2:]])
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else None)
