"""What viewers of a running `gpuscale up` can do to it, seen through its servers."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from live_loop import Loop

pytestmark = pytest.mark.xdist_group("live")


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    running = Loop(tmp_path_factory.mktemp("controls"), "ack-bert", "--speed", "60")
    yield running
    running.kill()


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        return str(response.read().decode())


def made_at(loop: Loop) -> list[str]:
    pods = loop.json("/api/v1/namespaces/default/pods")["items"]
    return sorted(pod["metadata"]["creationTimestamp"] for pod in pods)


def everything(loop: Loop) -> list[object]:
    """What moves with time, hop by hop, and the time that each of them shows."""
    state = loop.json("/ui/state")
    (agent,) = list(state["addresses"]["nodeAgents"].values())[:1]
    shown = re.findall(r"^DCGM_.*$", fetch(agent), re.MULTILINE)
    assert shown
    stored = loop.json("/api/v1/query?query=timestamp(up)")["data"]["result"]
    return [
        state["t"],
        state["hpas"],
        state["workloads"],
        state["nodes"],
        shown,
        stored,
        made_at(loop),
    ]


def test_a_pause_stops_every_hop_and_what_was_is_as_old_as_it_was(loop: Loop) -> None:
    loop.wait("SuccessfulRescale", 60)
    paused = loop.post("/ui/pace", {"paused": True})
    assert (paused["paused"], paused["speed"]) == (True, 60)
    looks = [everything(loop)]
    # What was due when it stopped is still done: a scrape under way, a point of the charts.
    while looks[-20:] != [looks[-1]] * 20:
        looks.append(everything(loop))
        assert looks[-1][0] == paused["t"]
        assert len(looks) < 100


def test_at_another_speed_times_go_on_where_they_were(loop: Loop) -> None:
    before = loop.post("/ui/pace", {"paused": True, "speed": 100})
    made = made_at(loop)
    loop.post("/ui/pace", {"paused": False})
    while loop.json("/ui/state")["t"] < before["t"] + 30:
        pass
    assert made_at(loop)[: len(made)] == made


def test_what_can_not_be_is_refused(loop: Loop) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        loop.post("/ui/pace", {"speed": 1000})
    assert json.loads(refused.value.read()) == {"error": "speed: found 1000, expected 0.1 to 100"}


def told(loop: Loop, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the page's state once it is so; the test's own time limit ends it."""
    while not until(state := loop.json("/ui/state")):
        pass
    return dict(state)


def has_value(state: dict[str, Any]) -> bool:
    return state["hpas"][0]["metrics"][0]["value"] is not None


def replicas(state: dict[str, Any]) -> tuple[int, int]:
    hpa = state["hpas"][0]
    return hpa["current"], hpa["desired"]


@pytest.fixture
def steady(loop: Loop) -> dict[str, Any]:
    """Two pods of 4.6 requests/s in all: 11.5 % each against a target of 20, far from any change."""
    name = loop.json("/ui/state")["workloads"][0]["name"]
    loop.post("/ui/load", {"workload": name, "rate": 4.6})
    return told(
        loop,
        lambda now: (
            now["workloads"][0]["ready"] == 2
            and now["hpas"][0]["metrics"][0]["value"] in {11, 11.5, 12}
            and not now["broken"]
        ),
    )


def break_part(loop: Loop, part: dict[str, object], *, broken: bool) -> dict[str, Any]:
    return dict(loop.post("/ui/fault", {**part, "broken": broken}))


def test_without_prometheus_there_is_no_value_and_nothing_is_scaled(
    loop: Loop, steady: dict[str, Any]
) -> None:
    break_part(loop, {"kind": "prometheus"}, broken=True)
    state = told(loop, lambda now: not has_value(now))
    assert replicas(state) == replicas(steady)
    assert state["hpas"][0]["targets"] == "<unknown>/20"
    assert "No metric gave a count, so nothing is scaled." in state["hpas"][0]["explanation"]
    with pytest.raises(urllib.error.HTTPError, match="503"):
        loop.get("/api/v1/query?query=up")
    assert loop.json("/api/v1/namespaces/default/pods")["items"]  # the API server is another
    break_part(loop, {"kind": "prometheus"}, broken=False)
    assert replicas(told(loop, has_value)) == replicas(steady)


def test_a_killed_agent_leaves_its_pod_without_a_sample(loop: Loop, steady: dict[str, Any]) -> None:
    node, url = next(iter(steady["addresses"]["nodeAgents"].items()))
    part: dict[str, object] = {"kind": "agent", "node": node}
    break_part(loop, part, broken=True)
    with pytest.raises(urllib.error.URLError, match="refused"):
        fetch(url)
    words = "1 pod without a sample counts as exactly on target."
    state = told(loop, lambda now: any(words in line for line in now["hpas"][0]["explanation"]))
    assert replicas(state) == replicas(steady)
    answer = loop.json(f'/api/v1/query?query=up{{instance="{urlsplit(url).netloc}"}}')
    assert [row["value"][1] for row in answer["data"]["result"]] == ["0"]
    told(
        loop,
        lambda now: (
            [gpu["util"] for each in now["nodes"] for gpu in each["gpus"] if each["name"] == node]
            == [None]
        ),
    )
    break_part(loop, part, broken=False)
    assert "DCGM_" in fetch(url)  # at the address that it had
    told(loop, lambda now: not any(words in line for line in now["hpas"][0]["explanation"]))


def offered(loop: Loop) -> list[str]:
    nodes = loop.json("/api/v1/nodes")["items"]
    return sorted(node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes)


def test_a_lost_gpu_is_offered_no_more_and_its_pod_serves_no_more(
    loop: Loop, steady: dict[str, Any]
) -> None:
    node = steady["nodes"][0]["name"]
    part: dict[str, object] = {"kind": "gpu", "node": node, "gpu": 0}
    state = break_part(loop, part, broken=True)
    assert state["workloads"][0]["ready"] == 1
    while offered(loop) != ["0", "1"]:  # objects of the API are a moment old
        pass
    # all 4.6 requests/s are now on the other: 23 %, and the lost one counts as idle
    state = told(loop, lambda now: now["hpas"][0]["metrics"][0]["value"] == 23)
    lost = [gpu for each in state["nodes"] for gpu in each["gpus"] if each["name"] == node]
    assert [(gpu["util"], gpu["faults"]) for gpu in lost] == [(None, ["the GPU is lost"])]
    state = break_part(loop, part, broken=False)
    assert state["workloads"][0]["ready"] == 2


def test_pods_of_a_lost_node_wait_for_another(loop: Loop, steady: dict[str, Any]) -> None:
    node = steady["nodes"][0]["name"]
    state = break_part(loop, {"kind": "node", "node": node}, broken=True)
    assert node not in [each["name"] for each in state["nodes"]]
    assert state["workloads"][0]["ready"] == 1
    assert state["broken"] == []  # another comes
    loop.wait(f"DeletingNode +Node/{node}", 30)
    told(loop, lambda now: now["workloads"][0]["ready"] == 2 and len(now["nodes"]) == 2)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"kind": "disk"}, "kind: expected one of agent, gpu, node, prometheus"),
        ({"kind": "agent", "node": "x"}, "node: found x, expected one of: gpu-"),
        ({"kind": "agent", "node": ["x"]}, "node: found \\['x'\\], expected one of: gpu-"),
        ({"kind": "gpu", "gpu": 1}, "gpu: found 1, expected an index below 1"),
        ({"kind": "gpu", "gpu": True}, "gpu: found True, expected an index below 1"),
        ({"kind": "prometheus", "broken": 1}, "broken: expected true or false"),
    ],
)
def test_what_is_not_there_can_not_be_broken(
    loop: Loop, part: dict[str, object], message: str
) -> None:
    node = loop.json("/ui/state")["nodes"][0]["name"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        loop.post("/ui/fault", {"node": node, "broken": True, **part})
    assert re.match(message, json.loads(refused.value.read())["error"])
