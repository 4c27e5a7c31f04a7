"""What viewers of a running `gpuscale up` can do to it, seen through its servers."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator

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
