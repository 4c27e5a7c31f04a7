"""Rows of GPUs from series as exporters and Prometheus servers write them."""

from typing import Any

import pytest

from gpuscale.ops.top.gpu_rows import gpu_rows

H200 = {"gpu": "0", "UUID": "GPU-1", "modelName": "NVIDIA H200", "Hostname": "gpu-a"}


def only(*samples: tuple[str, dict[str, str], float], **given: Any):
    (row,) = gpu_rows(samples, **given)
    return row


def test_the_values_of_a_gpu_stand_in_one_row() -> None:
    row = only(
        ("DCGM_FI_DEV_GPU_UTIL", H200, 43),
        ("DCGM_FI_DEV_FB_USED", H200, 1000),
        ("DCGM_FI_DEV_FB_FREE", H200, 142156),
        ("DCGM_FI_DEV_FB_RESERVED", H200, 615),
        ("DCGM_FI_DEV_POWER_USAGE", H200, 310.5),
        ("DCGM_FI_DEV_GPU_TEMP", H200, 51),
        ("DCGM_FI_DEV_XID_ERRORS", H200, 0),
    )
    assert (row.node, row.index, row.model) == ("gpu-a", "0", "NVIDIA H200")
    assert (row.use_percent, row.power_watts, row.temperature_celsius) == (43, 310.5, 51)
    # 1000 + 142156 + 615 MiB
    assert (row.memory_used_mib, row.memory_total_mib) == (1000, 143771)
    assert (row.owners, row.faults) == ((), ())


def test_names_and_units_of_dcgm_exporter_4_9_mean_the_same() -> None:
    row = only(
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", H200, 0.43),
        ("DCGM_FI_DEV_FB_USED_BYTES", H200, 1000 * 2**20),
        ("DCGM_FI_DEV_FB_CAPACITY_BYTES", H200, 143771 * 2**20),
        ("DCGM_FI_DEV_BOARD_POWER_WATTS", H200, 310.5),
        ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", H200, 51),
    )
    assert row.use_percent == pytest.approx(43)
    assert (row.memory_used_mib, row.memory_total_mib) == (1000, 143771)
    assert (row.power_watts, row.temperature_celsius) == (310.5, 51)


def test_a_split_gpu_is_its_instances() -> None:
    first = {**H200, "GPU_I_ID": "1", "GPU_I_PROFILE": "3g.71gb", "namespace": "a", "pod": "one"}
    second = {**H200, "GPU_I_ID": "2", "GPU_I_PROFILE": "3g.71gb"}
    rows = gpu_rows(
        [
            ("DCGM_FI_DEV_POWER_USAGE", H200, 310),  # of the whole GPU
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", first, 0.75),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", second, 0),
        ]
    )
    assert [(row.index, row.use_percent, row.owners) for row in rows] == [
        ("0/1", 75, ("a/one",)),
        ("0/2", 0, ()),
    ]
    assert rows[0].model == "NVIDIA H200 3g.71gb"
    assert rows[0].power_watts is None


@pytest.mark.parametrize(
    ("labels", "owner"),
    [
        ({"namespace": "prod", "pod": "chat-1"}, "prod/chat-1"),
        ({"pod_namespace": "prod", "pod_name": "chat-1"}, "prod/chat-1"),
        ({"NamespaceName": "prod", "PodName": "chat-1"}, "prod/chat-1"),
        # Prometheus without honorLabels: `pod` is the exporter that it scrapes.
        (
            {
                "namespace": "gpu",
                "pod": "exporter-x",
                "exported_namespace": "prod",
                "exported_pod": "chat-1",
            },
            "prod/chat-1",
        ),
    ],
)
def test_the_owner_is_read_from_every_spelling(labels: dict[str, str], owner: str) -> None:
    assert only(("DCGM_FI_DEV_GPU_UTIL", {**H200, **labels}, 1)).owners == (owner,)


def test_the_pod_that_serves_the_series_is_no_owner() -> None:
    labels = {**H200, "namespace": "gpu", "pod": "exporter-x"}
    sample = ("DCGM_FI_DEV_GPU_UTIL", labels, 1.0)
    assert only(sample, not_owners=frozenset({"gpu/exporter-x"})).owners == ()


def test_a_shared_gpu_has_all_its_owners() -> None:
    row = only(
        ("DCGM_FI_DEV_GPU_UTIL", {**H200, "namespace": "b", "pod": "two"}, 60),
        ("DCGM_FI_DEV_GPU_UTIL", {**H200, "namespace": "a", "pod": "one"}, 60),
    )
    assert (row.use_percent, row.owners) == (60, ("a/one", "b/two"))


@pytest.mark.parametrize("value", [4294967295, 808334905, 0x7FFFFFFF0, -1])
def test_a_value_that_can_not_be_is_no_value(value: float) -> None:
    row = only(("DCGM_FI_DEV_GPU_UTIL", H200, value), ("DCGM_FI_DEV_GPU_TEMP", H200, 40))
    assert (row.use_percent, row.temperature_celsius) == (None, 40)


def test_faults_are_named_once_and_before_the_last_xid() -> None:
    problem = {**H200, "reason": "row_remap_failed", "severity": "fatal"}
    row = only(
        ("DCGM_FI_DEV_GPU_UTIL", H200, 0),
        ("DCGM_FI_DEV_XID_ERRORS", H200, 63),
        ("gpuscale_gpu_health_problem", problem, 1),
    )
    assert row.faults == ("row_remap_failed",)
    assert only(("DCGM_FI_DEV_XID_ERRORS", H200, 63)).faults == ("Xid 63",)


def test_gpus_are_in_the_order_of_their_numbers() -> None:
    rows = gpu_rows(
        [
            ("DCGM_FI_DEV_GPU_UTIL", {**H200, "gpu": str(index), "UUID": f"GPU-{index}"}, 1)
            for index in (10, 2, 0)
        ]
    )
    assert [row.index for row in rows] == ["0", "2", "10"]
