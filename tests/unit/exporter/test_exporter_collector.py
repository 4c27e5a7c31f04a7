"""One collect, good and bad: what scrapes get and what the log says."""

import logging

import pytest

from gpuscale.agent.exporter.collector import LEFT_OUT, Collector
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.simulated import GpuWork, SimulatedReader
from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import UnavailableError
from gpuscale.signals import DEFAULT_COUNTERS, load_counters

BERT = ContainerRef("ml", "bert-0", "main")
UTIL_ONLY = load_counters("DCGM_FI_DEV_GPU_UTIL, gauge, Busy.", "my.csv")


class Node:
    """A reader whose faults are set by hand, around two simulated T4."""

    def __init__(self) -> None:
        work = (GpuWork(101, "python", 0.23, 0.1, 4000),)
        self.inner = SimulatedReader(
            "n1", MODELS["Tesla T4"], 2, 1, lambda gpu, *_: () if gpu else work
        )
        self.failure = None
        self.cannot_list = False
        self.left_out = ()
        self.calls = ()

    def gpus(self):
        if self.cannot_list:
            raise UnavailableError("driver not loaded")
        return self.inner.gpus()

    def read(self, now_ms):
        if self.failure:
            raise self.failure
        return tuple(r for r in self.inner.read(now_ms) if r.gpu.index not in self.left_out)

    def stats(self):
        return self.calls

    def close(self) -> None:
        pass

    @property
    def owners(self):
        return Attribution({self.inner.gpus()[0].uuid: (BERT,)}, {101: BERT})


@pytest.fixture
def node():
    return Node()


def collector(node, counters=UTIL_ONLY, styles=("dcgm",), attribution=None, clock=None):
    return Collector(
        node,
        attribution or (lambda _: node.owners),
        counters,
        FamilyOptions("n1"),
        clock or ManualClock(60_000),
        frozenset(styles),
    )


def collect(it):
    return it.publish(it.read())


def samples(snapshot):
    """Return sample lines by metric name."""
    found = {}
    for line in snapshot.text.decode().splitlines():
        if not line.startswith("#"):
            found.setdefault(line.split("{")[0].split(" ")[0], []).append(line)
    return found


def own(snapshot, name):
    (line,) = samples(snapshot)[f"gpuscale_exporter_{name}"]
    return float(line.rsplit(" ", 1)[1])


def test_good_collect_serves_devices_with_their_pods(node) -> None:
    found = samples(collect(collector(node)))
    first, second = found["DCGM_FI_DEV_GPU_UTIL"]
    assert first.endswith('container="main",namespace="ml",pod="bert-0"} 23')
    assert second.endswith('Hostname="n1"} 0')


def test_good_collect_says_so(node) -> None:
    snapshot = collect(collector(node, clock=ManualClock(1_700_000_000_500)))
    assert own(snapshot, "collect_up") == 1
    assert own(snapshot, "attribution_up") == 1
    assert own(snapshot, "collects_total") == 1
    assert own(snapshot, "collect_failures_total") == 0
    assert own(snapshot, "last_collect_timestamp_seconds") == 1_700_000_000.5
    assert own(snapshot, "collect_duration_seconds") >= 0
    assert [line[-1] for line in samples(snapshot)["gpuscale_exporter_gpu_up"]] == ["1", "1"]


def test_before_the_first_collect_there_are_no_device_series(node) -> None:
    found = samples(collector(node).nothing_yet())
    assert not any(name.startswith("DCGM") for name in found)
    assert "gpuscale_exporter_collect_up" not in found
    assert "gpuscale_exporter_last_collect_timestamp_seconds" not in found


def test_failed_read_takes_the_device_series_away(node) -> None:
    clock = ManualClock(60_000)
    it = collector(node, clock=clock)
    collect(it)
    node.failure = UnavailableError("driver not loaded")
    clock.advance(15)
    snapshot = collect(it)
    assert not any(name.startswith("DCGM") for name in samples(snapshot))
    assert own(snapshot, "collect_up") == 0
    assert own(snapshot, "collect_failures_total") == 1
    assert own(snapshot, "last_collect_timestamp_seconds") == 60
    assert [line[-1] for line in samples(snapshot)["gpuscale_exporter_gpu_up"]] == ["0", "0"]
    assert snapshot.status.error == "driver not loaded"


def test_gpus_that_can_no_longer_be_listed_count_as_down(node) -> None:
    it = collector(node)
    collect(it)
    node.cannot_list = True
    snapshot = collect(it)
    assert [each.error for each in snapshot.status.gpus] == ["driver not loaded"] * 2


def test_error_without_a_message_is_named_by_its_class(node) -> None:
    node.failure = RuntimeError()
    assert collect(collector(node)).status.error == "RuntimeError"


def test_series_come_back_after_a_failure(node) -> None:
    it = collector(node)
    node.failure = UnavailableError("driver not loaded")
    collect(it)
    node.failure = None
    snapshot = collect(it)
    assert len(samples(snapshot)["DCGM_FI_DEV_GPU_UTIL"]) == 2
    assert own(snapshot, "collect_up") == 1


@pytest.mark.parametrize("how", ["lost", "left out"])
def test_missing_gpu_is_told_and_the_others_are_served(node, how: str) -> None:
    if how == "lost":
        node.inner.lose(1)
    else:
        node.left_out = (1,)
    snapshot = collect(collector(node))
    assert len(samples(snapshot)["DCGM_FI_DEV_GPU_UTIL"]) == 1
    assert [line[-1] for line in samples(snapshot)["gpuscale_exporter_gpu_up"]] == ["1", "0"]
    reason = "the GPU is lost" if how == "lost" else LEFT_OUT
    assert [each.error for each in snapshot.status.gpus] == [None, reason]


def test_absent_fields_are_counted_by_reason(node) -> None:
    found = samples(collect(collector(node, counters=DEFAULT_COUNTERS)))
    assert (
        'gpuscale_exporter_absent_fields{field="DCGM_FI_DEV_MEMORY_TEMP",'
        'reason="Tesla T4 has no memory temperature sensor"} 2'
    ) in found["gpuscale_exporter_absent_fields"]


def test_derived_counters_are_told_as_not_collected(node) -> None:
    counters = load_counters("DCGM_EXP_XID_ERRORS_COUNT, gauge, Xids.", "my.csv")
    inner = node.inner
    node.inner = SimulatedReader("n1", MODELS["Tesla T4"], 1, 1, lambda *_: (), fields=frozenset())
    found = samples(collect(collector(node, counters=counters)))
    node.inner = inner
    assert found["gpuscale_exporter_absent_fields"] == [
        'gpuscale_exporter_absent_fields{field="DCGM_EXP_XID_ERRORS_COUNT",'
        'reason="derived counters are not collected"} 1'
    ]


def broken_attribution(_) -> None:
    raise UnavailableError("kubelet socket missing")


def test_without_owners_devices_are_served_without_pods(node) -> None:
    snapshot = collect(collector(node, attribution=broken_attribution))
    assert "pod=" not in samples(snapshot)["DCGM_FI_DEV_GPU_UTIL"][0]
    assert own(snapshot, "attribution_up") == 0
    assert snapshot.status.attribution_error == "kubelet socket missing"


def test_owners_that_are_not_known_yet_are_reported(node) -> None:
    snapshot = collect(collector(node, attribution=lambda _: Attribution(is_known=False)))
    assert "pod=" not in samples(snapshot)["DCGM_FI_DEV_GPU_UTIL"][0]
    assert own(snapshot, "attribution_up") == 0


def test_without_owners_no_process_is_called_illegal(node) -> None:
    found = samples(collect(collector(node, styles=["ack"], attribution=broken_attribution)))
    assert "DCGM_FI_DEV_GPU_UTIL" in found
    assert not any(name.startswith("DCGM_CUSTOM") for name in found)


def test_ack_style_serves_processes_and_allocations(node) -> None:
    found = samples(collect(collector(node, styles=["ack"])))
    assert found["DCGM_CUSTOM_PROCESS_SM_UTIL"][0].endswith(" 23")
    assert 'PodName="bert-0"' in found["DCGM_FI_DEV_GPU_UTIL"][0]
    assert "pci_bus_id" not in found["DCGM_FI_DEV_GPU_UTIL"][0]


def test_both_styles_serve_one_sample_per_device_with_the_labels_of_both(node) -> None:
    found = samples(collect(collector(node, styles=["dcgm", "ack"])))
    first, _second = found["DCGM_FI_DEV_GPU_UTIL"]
    assert 'PodName="bert-0"' in first
    assert 'pod="bert-0"' in first
    assert "DCGM_CUSTOM_PROCESS_SM_UTIL" in found


def test_lasting_fault_is_logged_once_and_its_end_too(
    node, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    it = collector(node)
    node.failure = UnavailableError("driver not loaded")
    collect(it)
    collect(it)
    node.failure = None
    collect(it)
    assert [record.getMessage() for record in caplog.records] == [
        "reading the GPUs failed: driver not loaded",
        "reading the GPUs works again",
    ]


def test_lost_gpu_is_logged_with_its_reason(node, caplog: pytest.LogCaptureFixture) -> None:
    it = collector(node)
    collect(it)
    node.inner.lose(1)
    collect(it)
    collect(it)
    uuid = node.inner.gpus()[1].uuid
    assert [record.getMessage() for record in caplog.records] == [
        f"reading GPU 1 ({uuid}) failed: the GPU is lost"
    ]
