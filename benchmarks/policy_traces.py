"""Public traces of GPU demand as columns of pods' work, one number every 15 seconds.

They are read where they lie, and are no part of gpuscale: `--traces FOLDER` names the folder, each trace its
file in it, its source and its licence.

    azure-conv          Azure LLM inference trace 2023 (CC BY 4.0), an hour of chat requests
    mooncake            Mooncake's conversation trace (Apache-2.0), an hour of long prompts
    servegen-*          ServeGen (Apache-2.0): rates of production endpoints in windows of ten minutes; work
                        within one is drawn with the clients' own spread, from a fixed seed for each draw
    gentd26             Alibaba GenTD26 (research use): GPU duty of a day of image generation, summed
    helios-*            SenseTime Helios, cluster Earth (MIT): GPUs running and asked for, in nodes of 8
    philly              Microsoft Philly (MIT, CC BY 4.0): nodes in use, scaled to a peak of 40, before the
                        cluster was resized
"""

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy

from gpuscale.triggers.policies.policy import Numbers

STEP_S = 15.0
WINDOW_S = 600
"""Of ServeGen's rates."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One workload's demand."""

    name: str
    demand: Numbers
    start_up_s: float
    draw: int = 1
    """Of the arrivals; a recorded trace has one."""

    @property
    def days(self) -> float:
        """Return its length."""
        return len(self.demand) * STEP_S / 86_400


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    file: str
    read: Callable[[Path], Numbers]
    start_up_s: float
    peak: float | None = None
    """What the 99.9 % quantile is scaled to."""
    days: float | None = None


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt") as file:
        yield from csv.DictReader(file)


def _held(values: list[float], period_s: float) -> Numbers:
    """Return values of a longer period at every step."""
    steps = int(len(values) * period_s / STEP_S)
    held: Numbers = numpy.array(values)[(numpy.arange(steps) * STEP_S / period_s).astype(int)]
    return held


def _helios(path: Path) -> Numbers:
    asked = [(int(row["running_gpu_num"]) + int(row["pending_gpu_num"])) / 8 for row in _rows(path)]
    return _held(asked, 60)


def running_gpus(path: Path) -> Numbers:
    """Return the GPUs that ran in each minute of a cluster of Helios."""
    return numpy.array([float(row["running_gpu_num"]) for row in _rows(path)])


def nodes_in_use(path: Path) -> Numbers:
    """Return the nodes in use in each minute of Philly."""
    return numpy.array([float(row["active"]) for row in _rows(path)])


def _philly(path: Path) -> Numbers:
    return _held(nodes_in_use(path).tolist(), 60)


def _duty(path: Path) -> Numbers:
    period_s = 57.0
    busy: dict[float, float] = defaultdict(float)
    for row in _rows(path):
        if row["container_ip"] not in {"", "None", "NULL"}:
            busy[float(row["timestamp_anon"])] += float(row["value"]) / 100
    first, last = min(busy), max(busy)
    values, value = [], 0.0
    for index in range(int((last - first) / period_s) + 1):
        value = busy.get(first + period_s * index, value)
        values.append(value)
    return _held(values, period_s)


def _servegen(path: Path, seed: int = 1) -> Numbers:
    draw = numpy.random.default_rng(seed)
    each = int(WINDOW_S / STEP_S)
    return numpy.concatenate(
        [
            draw.gamma(mean * mean / variance, variance / mean, each) / STEP_S
            if mean > 0
            else numpy.zeros(each)
            for mean, variance in counts_of(path)
        ]
    )


def counts_of(path: Path) -> list[tuple[float, float]]:
    """Return mean and variance of a step's requests in each window of a file of ServeGen's clients."""
    clients: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for row in _rows(path):
        spread = float(row["interarrival_cv"] or 0)
        clients[int(float(row["window_start_s"])) // WINDOW_S].append(
            (float(row["rate_rps"]), spread)
        )
    # A renewal process' count over a time has about rate x time as its mean, and that times the
    # squared variation of its gaps as its variance.
    return [
        (
            sum(rate for rate, _ in clients[window]) * STEP_S,
            sum(rate * STEP_S * max(spread, 0.1) ** 2 for rate, spread in clients[window]),
        )
        for window in range(max(clients) + 1)
    ]


def _azure(path: Path) -> Numbers:
    times, work = [], []
    for row in _rows(path):
        times.append(datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp())
        work.append(int(row["ContextTokens"]) / 4000 + int(row["GeneratedTokens"]) / 500)
    return _binned(times, work)


def _mooncake(path: Path) -> Numbers:
    times, work = [], []
    with gzip.open(path, "rt") as file:
        for line in file:
            row = json.loads(line)
            times.append(row["timestamp"] / 1000)
            work.append(row["input_length"] / 8000 + row["output_length"] / 500)
    return _binned(times, work)


def _binned(times: list[float], work: list[float]) -> Numbers:
    steps = ((numpy.array(times) - times[0]) / STEP_S).astype(int)
    return numpy.bincount(steps, work) / STEP_S


_SOURCES = (
    _Source("azure-conv", "azure-llm-2023/AzureLLMInferenceTrace_conv.csv.gz", _azure, 90, 24),
    _Source(
        "mooncake", "mooncake-conversation-2025/conversation_trace.jsonl.gz", _mooncake, 90, 24
    ),
    _Source("servegen-deepseek-r1", "servegen-2025/deepseek-r1_clients.csv.gz", _servegen, 120, 32),
    _Source("servegen-mm-image", "servegen-2025/mm-image_clients.csv.gz", _servegen, 120, 32),
    _Source("servegen-m-small", "servegen-2025/m-small_clients.csv.gz", _servegen, 120, 40),
    _Source("gentd26", "alibaba-gentd26/pod_gpu_duty_cycle_anon.csv.gz", _duty, 180, 24),
    _Source("helios-vc3sl", "helios-earth-2020/vc3sl_cluster_sequence.csv.gz", _helios, 300),
    _Source("helios-vchbv", "helios-earth-2020/vchbv_cluster_sequence.csv.gz", _helios, 300),
    _Source("helios-vcvlY", "helios-earth-2020/vcvlY_cluster_sequence.csv.gz", _helios, 300),
    _Source("philly", "philly-nodes-2017/philly_node_sequence.csv.gz", _philly, 300, 40, days=42),
)


def known_distributions(folder: Path) -> Iterator[tuple[Trace, list[tuple[float, float]]]]:
    """Yield the traces whose demand is drawn, each with the gamma distributions that it is drawn from.

    They are shape and scale, in pods, one for each window.
    """
    for source in _SOURCES:
        path = folder / source.file
        if source.read is _servegen and source.peak is not None and path.exists():
            demand = source.read(path)
            factor = source.peak / numpy.quantile(demand, 0.999)
            counts = counts_of(path)
            yield (
                Trace(source.name, demand * factor, source.start_up_s),
                [
                    (mean * mean / variance, variance / mean / STEP_S * factor)
                    if mean > 0
                    else (1.0, 0.0)
                    for mean, variance in counts
                ],
            )


def traces(folder: Path, draws: int = 1) -> Iterator[Trace]:
    """Yield the traces whose files are there, and name those that are not on standard output.

    Args:
        folder: that they lie in.
        draws: of arrivals, where they are drawn; each is a trace.
    """
    for source in _SOURCES:
        path = folder / source.file
        if not path.exists():
            print(f"left out: {source.name}, because {path} is not there")
            continue
        is_drawn = source.read is _servegen
        for draw in range(1, draws + 1 if is_drawn else 2):
            demand = _servegen(path, draw) if is_drawn else source.read(path)
            if source.days is not None:
                demand = demand[: int(source.days * 86_400 / STEP_S)]
            if source.peak is not None:
                demand = demand * (source.peak / numpy.quantile(demand, 0.999))
            yield Trace(source.name, demand, source.start_up_s, draw)
