"""`gpuscale money` on a real Prometheus: hours and money by hand beside what it says."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster_samples import write_in_order
from gpuscale.hpa.cluster.catalogue import parse_instance_types
from gpuscale.ops.money.prices import HourPrice, PriceBook, node_facts
from gpuscale.ops.money.questions import series_label
from gpuscale.testing.prometheus import Sample, serve

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus"),
]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
START_S = 1_767_225_600
HOUR_S = 3600
HOURS = 10
EVERY_S = 300
"""As far as one sample reaches."""
RESOURCE = {"resource": "nvidia_com_gpu"}


def samples(
    name: str, labels: Mapping[str, str], value: float, begin_h: float, end_h: float
) -> Iterator[Sample]:
    """Yield samples from just after one hour until the other; Prometheus looks back for a step."""
    at_s = START_S + round(begin_h * HOUR_S) + EVERY_S
    while at_s <= START_S + round(end_h * HOUR_S):
        yield {"__name__": name, **labels}, at_s * 1000, value
        at_s += EVERY_S


def stale(name: str, labels: Mapping[str, str], at_h: float) -> Sample:
    from gpuscale.series.values import STALE

    return {"__name__": name, **labels}, START_S * 1000 + round(at_h * HOUR_S * 1000) + 1000, STALE


def lived(
    name: str, labels: Mapping[str, str], value: float, begin_h: float, end_h: float
) -> list[Sample]:
    found = list(samples(name, labels, value, begin_h, end_h))
    return found if end_h >= HOURS else [*found, stale(name, labels, end_h)]


def pod(
    namespace: str, name: str, node: str, gpus: int, hours: tuple[float, float], **given: str
) -> list[Sample]:
    """Return what kube-state-metrics says of a pod that runs on a node for these hours."""
    own = {"namespace": namespace, "pod": name}
    at = {**own, "container": "main", "node": node, **RESOURCE}
    owner = {"owner_kind": "ReplicaSet", "owner_name": f"{name.rpartition('-')[0]}"}
    return [
        *lived("kube_pod_container_resource_requests", at, gpus, *hours),
        *lived("kube_pod_status_phase", {**own, "phase": "Running"}, 1, *hours),
        *lived("kube_pod_owner", {**own, **owner}, 1, *hours),
        *lived("kube_pod_labels", {**own, **given}, 1, *hours),
    ]


def gpus_of(node: str, model: str, count: int, hours: tuple[float, float]) -> list[Sample]:
    found = lived("kube_node_status_allocatable", {"node": node, **RESOURCE}, count, *hours)
    for index in range(count):
        labels = {
            "Hostname": node,
            "UUID": f"{node}-{index}",
            "modelName": model,
            "gpu": str(index),
        }
        found += lived("DCGM_FI_DEV_GPU_TEMP", labels, 40, *hours)
    return found


def busy(
    namespace: str, name: str, node: str, index: int, percent: float, hours: tuple[float, float]
) -> list[Sample]:
    labels = {"namespace": namespace, "pod": name, "UUID": f"{node}-{index}", "gpu": str(index)}
    return lived("DCGM_FI_DEV_GPU_UTIL", labels, percent, *hours)


def recorded() -> list[Sample]:
    """Return ten hours of a cluster.

    | node | what it is | for | pods |
    | --- | --- | --- | --- |
    | a | p5.48xlarge, 8 GPUs | 10 h | notebook: 1 GPU, 10 h |
    | | | | chat: 4 GPUs, 10 h, 50 % busy, not ready for 1 h; batch: 2, 5 h, idle |
    | b | unknown, 2 NVIDIA L4 | 5 h | eval: 1 GPU for 5 h, 100 % busy |
    """
    both = (0.0, 10.0)
    found = [
        *gpus_of("a", "NVIDIA H100 80GB HBM3", 8, both),
        *gpus_of("b", "NVIDIA L4", 2, (0, 5)),
        *lived(
            "kube_node_labels",
            {"node": "a", "label_node_kubernetes_io_instance_type": "p5.48xlarge"},
            1,
            *both,
        ),
        *pod("llm", "chat-7c9d-x2v4q", "a", 4, both, label_team="talk"),
        *pod("train", "batch-55d7-aaaaa", "a", 2, (0, 5), label_team="lab"),
        *pod("train", "eval-66d8-bbbbb", "b", 1, (0, 5), label_team="lab"),
        *lived(
            "kube_replicaset_owner",
            {
                "namespace": "llm",
                "replicaset": "chat-7c9d",
                "owner_kind": "Deployment",
                "owner_name": "chat",
            },
            1,
            *both,
        ),
    ]
    chat = {"namespace": "llm", "pod": "chat-7c9d-x2v4q", "condition": "true"}
    found += samples("kube_pod_status_ready", chat, 0, 0, 1)
    found += samples("kube_pod_status_ready", chat, 1, 1, 10)
    for index in range(4):
        found += busy("llm", "chat-7c9d-x2v4q", "a", index, 50, both)
    for index in range(4, 6):
        found += busy("train", "batch-55d7-aaaaa", "a", index, 0, (0, 5))
    for index in range(4):
        found += peaks("llm", "chat-7c9d-x2v4q", f"a-{index}", "NVIDIA H100 80GB HBM3", 30_000, 0.9)
    found += peaks("train", "eval-66d8-bbbbb", "b-0", "NVIDIA L4", 20_000, 0.2)
    found += [
        *pod("dev", "notebook-5c5c-ccccc", "a", 1, both),
        *peaks("dev", "notebook-5c5c-ccccc", "a-7", "NVIDIA H100 80GB HBM3", 12_000, 0.2),
    ]
    # A Prometheus that doesn't honour labels calls the exporter's pod `pod`.
    theirs = {"exported_namespace": "train", "exported_pod": "eval-66d8-bbbbb"}
    theirs |= {"namespace": "dcgm", "pod": "exporter-b", "UUID": "b-0", "gpu": "0"}
    return [*found, *lived("DCGM_FI_DEV_GPU_UTIL", theirs, 100, 0, 5)]


def peaks(
    namespace: str, name: str, uuid: str, model: str, memory_mib: float, sms: float
) -> list[Sample]:
    """Return a GPU's memory and SMs: a moment of so much, and half of it in the others."""
    labels = {"namespace": namespace, "pod": name, "UUID": uuid, "modelName": model}
    return [
        *samples("DCGM_FI_DEV_FB_USED", labels, memory_mib / 2, 0, 2),
        *samples("DCGM_FI_DEV_FB_USED", labels, memory_mib, 2, 2.1),
        *samples("DCGM_FI_PROF_SM_ACTIVE", labels, sms / 2, 0, 2),
        *samples("DCGM_FI_PROF_SM_ACTIVE", labels, sms, 2, 2.1),
    ]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve([], tmp_path_factory.mktemp("prometheus")) as prometheus:
        write_in_order(prometheus, recorded())
        yield prometheus.url


def money(url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    until = str(START_S + HOURS * HOUR_S)
    return subprocess.run(
        [
            *(GPUSCALE, "money", f"--prometheus-url={url}", f"--since={HOURS}h"),
            *(f"--until={until}", *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def document(url: str, *arguments: str):
    done = money(url, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def near(value: float):
    return pytest.approx(value, rel=0.01, abs=0.01)


P5_USD_HOUR = 55.04  # catalogue/aws.csv


def test_hours_and_money_add_up_to_the_nodes(url: str) -> None:
    found = document(url, "--gpu-price=NVIDIA L4=0.8")
    # 8 GPUs for 10 h, 2 for 5 h; the first at its type's price, the second at 0.8 USD a GPU
    assert found["gpuHoursBought"] == near(8 * 10 + 2 * 5)
    assert found["nodesMoney"] == near(P5_USD_HOUR * 10 + 2 * 0.8 * 5)
    assert sum(each["gpuHours"] for each in found["lines"]) == near(found["gpuHoursBought"])
    assert sum(each["money"] for each in found["lines"]) == near(found["nodesMoney"])
    assert found["unpriced"] == found["unseen"] == []


def test_each_namespace_has_what_its_pods_held(url: str) -> None:
    lines = {
        each["namespace"]: each for each in document(url, "--gpu-price=NVIDIA L4=0.8")["lines"]
    }
    chat, train, nobody = (lines[each] for each in ("llm", "train", "(asked for by nobody)"))
    # 4 of 8 GPUs for 10 h, half busy; 4 GPUs for the first hour before the pod was ready
    assert chat["gpuHours"] == near(40)
    assert chat["gpuHoursUsed"] == near(20)
    assert chat["gpuHoursStarting"] == near(4)
    assert chat["gpuHoursIdle"] == near(16)
    assert chat["money"] == near(P5_USD_HOUR * 10 * 4 / 8)
    assert chat["moneyAMonth"] == near(P5_USD_HOUR * 4 / 8 * 730)
    # batch: 2 of 8 for 5 h, idle; eval: 1 of the other node's 2 for 5 h, busy
    assert train["gpuHours"] == near(2 * 5 + 1 * 5)
    assert train["gpuHoursUsed"] == near(5)
    assert train["money"] == near(P5_USD_HOUR * 5 * 2 / 8 + 0.8 * 5)
    # 1 GPU of the first node all the time, 2 more after batch, and 1 of the second
    assert nobody["gpuHours"] == near(1 * 10 + 2 * 5 + 1 * 5)
    assert nobody["gpuHoursUsed"] == 0


def test_lines_are_added_up_as_one_asks(url: str) -> None:
    by_workload = document(url, "--by=namespace,workload")["lines"]
    assert {(each["namespace"], each["workload"]) for each in by_workload} >= {
        ("llm", "Deployment/chat"),
        ("train", "ReplicaSet/batch-55d7"),  # no series says who made it
    }
    teams = {each["label"]: each for each in document(url, "--by=label", "--label=team")["lines"]}
    assert teams["talk"]["gpuHours"] == near(40)
    assert teams["lab"]["gpuHours"] == near(15)
    models = {each["gpu"]: each["gpuHours"] for each in document(url, "--by=gpu")["lines"]}
    assert models == {"NVIDIA H100 80GB HBM3": near(80), "NVIDIA L4": near(10)}


def test_what_has_no_price_is_said_and_not_guessed(url: str) -> None:
    found = document(url)
    ((gpu_hours, reason),) = [tuple(each.values()) for each in found["unpriced"]]
    assert gpu_hours == near(10)
    assert "kube_node_labels" in reason
    assert found["nodesMoney"] == near(P5_USD_HOUR * 10)


def test_whole_gpus_that_a_part_would_do_for_are_named_with_what_they_used(url: str) -> None:
    found = {(each["workload"], next(iter(each["to"]))): each for each in document(url)["smaller"]}
    # 12 000 MiB and a fifth of the SMs are more than 1g's eighth and seventh, and fit 2g's quarters.
    (notebook,) = (each for key, each in found.items() if key[1] == "migProfile")
    assert notebook["workload"] == "ReplicaSet/notebook-5c5c"
    assert notebook["to"] == {"migProfile": "2g", "memoryMib": near(81_559 / 4)}
    assert (notebook["memoryMibHighest"], notebook["smShareHighest"]) == (12_000, 0.2)
    # 30 000 MiB of four H100s fit the L40S or A100 of a cheaper type, and the L4's 20 000 MiB have no price.
    chat = found["Deployment/chat", "instanceType"]
    assert chat["gpusPerPod"] == 4
    assert chat["to"]["memoryMib"] * 0.9 >= 30_000
    assert chat["to"]["memoryMib"] < 81_559 * 0.9
    assert not any(key[0] == "ReplicaSet/eval-66d8" for key in found)
    assert (
        "Could be smaller: dev/ReplicaSet/notebook-5c5c: at most 11.7 of 80 GiB"
        in money(url).stdout
    )


def test_text_has_the_same_numbers(url: str) -> None:
    text = money(url, "--gpu-price=NVIDIA L4=0.8").stdout
    assert "90.0 GPU-hours bought, 558.40 USD" in text
    line = next(each for each in text.splitlines() if each.startswith("llm"))
    assert line.split()[1:6] == ["40.0", "20.0", "4.0", "16.0", "40%"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--by=colour"], "--by: found 'colour', expected some of namespace, workload"),
        (["--by=label"], "--by label, --label KEY: expected both or none"),
        (["--gpu-price=L4"], "--gpu-price: found 'L4', expected a model and what a GPU costs"),
        (["--gpu-price=L4=-1"], "--gpu-price: found 'L4=-1'"),
        (["--since=1000d"], "--since: found '1000d', expected 400 days at most"),
        (["--until=noon"], "--until: "),
        (["--instance-types=gone.csv"], "gone.csv"),
    ],
)
def test_what_it_refuses(arguments: list[str], told: str) -> None:
    done = money("http://127.0.0.1:1", *arguments)
    assert told in done.stderr
    assert done.returncode == 2


def test_a_prometheus_that_is_away() -> None:
    done = money("http://127.0.0.1:1")
    assert "127.0.0.1:1" in done.stderr
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_prometheus_without_the_series_says_what_is_missing(tmp_path: Path) -> None:
    with serve([({"__name__": "up"}, START_S * 1000, 1.0)], tmp_path) as prometheus:
        found = document(prometheus.url)
    assert found["gpuHoursBought"] == 0
    assert found["unseen"] == [
        "nodes: no kube_node_status_allocatable of GPUs; kube-state-metrics has it"
    ]


@pytest.mark.parametrize(
    ("key", "label"),
    [
        # kube-state-metrics v2.13 internal/store/utils_test.go and the rule beside it
        ("team", "team"),
        ("node.kubernetes.io/instance-type", "node_kubernetes_io_instance_type"),
        ("eks.amazonaws.com/capacityType", "eks_amazonaws_com_capacity_type"),
        ("camelCase", "camel_case"),
    ],
)
def test_keys_of_labels_are_written_as_kube_state_metrics_writes_them(key: str, label: str) -> None:
    assert series_label(key) == label


def test_a_spot_node_has_the_spot_price() -> None:
    labels = {
        "label_node_kubernetes_io_instance_type": "m9.xlarge",
        "label_eks_amazonaws_com_capacity_type": "SPOT",
        "label_karpenter_sh_nodepool": "gpu",
    }
    types = parse_instance_types(
        "name,gpuModel,gpus,cpu,memory,pricePerHour,spotPricePerHour\nm9.xlarge,NVIDIA L4,1,4,16Gi,3,1\n",
        "own.csv",
        {},
    )
    facts = node_facts(labels, "NVIDIA L4", 1)
    assert (facts.pool, facts.is_spot) == ("gpu", True)
    price = PriceBook(types).of(facts, 1)
    assert isinstance(price, HourPrice)
    assert price.amount == 1


def test_a_history_that_was_kept_says_the_same(url: str, tmp_path: Path) -> None:
    span = ("--since=2h", f"--until={START_S + 6 * HOUR_S}")
    kept = subprocess.run(
        [
            *(GPUSCALE, "history", "keep", f"--prometheus-url={url}", "--label=team"),
            *(f"--to={tmp_path / 'kept'}", *span),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert kept.returncode == 0, kept.stderr
    arguments = ("--by=namespace,workload,label", "--label=team", "--gpu-price=NVIDIA L4=0.8")
    asked = document(url, *arguments, *span)
    done = subprocess.run(
        [
            *(GPUSCALE, "money", f"--history={tmp_path / 'kept'}"),
            *(*span, *arguments, "-o", "json"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    recalled = json.loads(done.stdout)
    assert recalled["unseen"] == []
    assert recalled["nodesMoney"] == near(asked["nodesMoney"])
    assert _by_keys(recalled) == {
        key: {name: near(value) for name, value in line.items()}
        for key, line in _by_keys(asked).items()
    }


DAYS = 4


@pytest.fixture(scope="module")
def nightly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve four days of 8 GPUs, and of 2 more in the second half of each day."""
    found = gpus_of("a", "NVIDIA H100 80GB HBM3", 8, (0, 24 * DAYS))
    found += samples("kube_node_info", {"node": "a"}, 1, 0, 24 * DAYS)
    allocatable = {"node": "b", **RESOURCE}
    for day in range(DAYS):
        found += samples(
            "kube_node_status_allocatable", allocatable, 2, 24 * day + 12, 24 * day + 24
        )
        found.append(stale("kube_node_status_allocatable", allocatable, 24 * day + 24))
    with serve([], tmp_path_factory.mktemp("nightly")) as prometheus:
        write_in_order(prometheus, found)
        yield prometheus.url


def forecast(*source: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [
            *(GPUSCALE, "money", "--forecast", f"--since={24 * DAYS}h"),
            *source,
            *(f"--until={START_S + DAYS * 86_400}", "--gpu-price=*=2"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def assert_nights_go_on(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    a_day = 8 * 24 + 2 * 12
    assert found["gpuHoursBought"] == near(DAYS * a_day)
    assert found["next"]["gpuHours"] == near(14 * a_day)
    assert found["next"]["gpuHoursInterval"] == [near(14 * a_day)] * 2
    assert found["next"]["money"] == near(14 * a_day * 2)
    assert found["next"]["gpuHoursByDay"] == [near(a_day)] * 14
    assert found["pattern"] == "daily"


def test_the_next_two_weeks_are_as_the_days_before(nightly: str) -> None:
    assert_nights_go_on(forecast(f"--prometheus-url={nightly}", "-o", "json"))
    lines = forecast(f"--prometheus-url={nightly}").stdout.splitlines()
    assert lines[1].startswith("The next 14 days: 3,024 (90 of 100: ")
    assert lines[4].split() == ["2026-01-05", "00:00", "216.0", "432.00"]
    assert "Fewer than two weeks say nothing of weekends or of a trend." in lines


def test_a_kept_history_has_the_same_next_two_weeks(tmp_path: Path) -> None:
    from gpuscale.ops.history import HistoryWriter

    answers = []
    for hour in range(24 * DAYS):
        gpus = {"a": 8} if hour % 24 < 12 else {"a": 8, "b": 2}
        for node, count in gpus.items():
            at_ms, labels = (START_S + hour * HOUR_S) * 1000, {"node": node, **RESOURCE}
            answers.append((at_ms, "money/nodes", json.dumps(labels), 12.0 * count))
            answers.append((at_ms, "money/nodeMoments", json.dumps({"node": node}), 12.0))
    until_ms = (START_S + DAYS * 86_400) * 1000
    with HistoryWriter(tmp_path, 1 << 40) as writer:
        writer.write({"answers": answers, "kept": [(START_S * 1000, until_ms, "hours", "made up")]})
    assert_nights_go_on(forecast(f"--history={tmp_path}", "-o", "json"))


def test_too_few_days_are_not_looked_ahead_from(url: str) -> None:
    done = money(url, "--forecast")
    assert "--forecast: 0 of 10 hours are known, expected 3 days" in done.stderr
    assert done.returncode == 2


def _by_keys(bill: Mapping[str, Any]) -> dict[tuple[str, ...], dict[str, float]]:
    names = ("namespace", "workload", "label")
    figures = ("gpuHours", "gpuHoursUsed", "gpuHoursStarting", "money")
    return {
        tuple(each[name] for name in names): {name: each[name] for name in figures}
        for each in bill["lines"]
    }
