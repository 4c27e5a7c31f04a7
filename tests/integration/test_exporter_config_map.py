"""Counters from a ConfigMap, over the stand-in for the API server."""

import pytest

from gpuscale.agent.exporter.config_map import ConfigMapName, parse_config_map, read_config_map
from gpuscale.agent.exporter.counters_file import CountersFile
from gpuscale.base.clock import WallClock
from gpuscale.base.errors import NotFoundError
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.testing.api_server import FakeApiServer

NAME = ConfigMapName("gpu-operator", "dcgm-metrics")
PATH = "/api/v1/namespaces/gpu-operator/configmaps"
UTIL = "DCGM_FI_DEV_GPU_UTIL, gauge, Busy."


@pytest.fixture
async def server(tmp_path):
    async with FakeApiServer() as running:
        yield running, KubeSettings(kubeconfig=running.kubeconfig(tmp_path))


def config_map(**data: str):
    return {
        "metadata": {"namespace": "gpu-operator", "name": "dcgm-metrics", "uid": "u"},
        "data": data,
    }


async def test_key_metrics_holds_the_counters(server) -> None:
    running, settings = server
    running.others[f"{PATH}/dcgm-metrics"] = config_map(metrics=UTIL)
    assert await read_config_map(NAME, settings) == UTIL


async def test_what_is_not_there_is_told(server) -> None:
    running, settings = server
    with pytest.raises(NotFoundError, match="can't read ConfigMap gpu-operator/dcgm-metrics"):
        await read_config_map(NAME, settings)
    running.others[f"{PATH}/dcgm-metrics"] = config_map(other=UTIL)
    with pytest.raises(NotFoundError, match="no key 'metrics'"):
        await read_config_map(NAME, settings)


@pytest.mark.parametrize("text", ["x", "a:b:c", ":b", "a:", "A:b", "a:../b"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected NAMESPACE:NAME"):
        parse_config_map(text)


def test_none_is_no_config_map() -> None:
    assert parse_config_map("none") is None
    assert parse_config_map("gpu-operator:dcgm-metrics") == NAME


def test_new_text_is_applied_and_a_bad_one_is_not() -> None:
    applied: list[int] = []
    counters = CountersFile((UTIL, str(NAME)), "replace", WallClock())
    counters.give(UTIL, lambda rows: applied.append(len(rows)))
    counters.give(f"{UTIL}\nDCGM_FI_DEV_FB_USED, gauge, x", lambda rows: applied.append(len(rows)))
    counters.give("nonsense", lambda rows: applied.append(len(rows)))
    assert applied == [2]
    assert len(counters.counters) == 2
    assert "ConfigMap gpu-operator/dcgm-metrics" in (counters.status.error or "")


def test_silent_api_server_changes_nothing_but_the_status() -> None:
    counters = CountersFile((UTIL, str(NAME)), "replace", WallClock())
    counters.note_failure(NotFoundError("away"))
    assert counters.status.error == "away"
    counters.give(UTIL, lambda _: None)
    assert counters.status.error is None
