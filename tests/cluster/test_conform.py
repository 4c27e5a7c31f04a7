"""`gpuscale conform` on the whole loop of real parts: a real HPA scales out and in on what a device does."""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gpuscale_testing import wait_until

sys.path.insert(0, str(Path(__file__).parent))
from endpoints import endpoint
from loaded_loop import LIMIT_S, NAME, ROLE, LoadedLoop

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(400),
]

TARGET = 90
"""An idle device is 40 % busy and a loaded one 100: ceil(1 x 100 / 90) = 2 pods, whose mean is 70 of 90 under
load (2 x 70 / 90 = 1.6, so 2), and 40 without it (2 x 40 / 90 = 0.9, so 1)."""


class Conformed(LoadedLoop):
    """The loop with one pod, and somebody who gives new pods their devices all the time."""

    def one_pod(self) -> None:
        metric = {
            "type": "Pods",
            "pods": {
                "metric": {"name": "gpu_util"},
                "target": {"type": "AverageValue", "averageValue": str(TARGET)},
            },
        }
        spec = {"spec": {"minReplicas": 1, "maxReplicas": 3, "metrics": [metric]}}
        self.plane.kubectl(
            "patch", f"hpa/{NAME}", f"-n={NAME}", "--type=merge", "-p", json.dumps(spec)
        )
        self.rests()

    def rests(self) -> None:
        """Return once there is one pod, with a device that is idle."""

        def is_resting():
            seen = self.watch.seen[-1]
            return seen.replicas[NAME][0] == 1 and list(seen.values.values()) == ["40"]

        wait_until(is_resting, "one idle pod", LIMIT_S)

    def work_first(self) -> None:
        """Keep the oldest pod's device busy for the next two seconds."""
        pods = self.plane.get("pods", "-n", NAME)["items"]
        oldest = min(pods, key=lambda pod: pod["metadata"]["creationTimestamp"])
        key = NAME, oldest["metadata"]["name"]
        for kubelet, _ in self.kubelets.values():
            for gpu in kubelet.allocated.get(key, ()):
                self.busy.write_text(gpu)

    def conform(self, *arguments):
        agents = [f"--agent={node}={url}" for node, url in self.agents.items()]
        return subprocess.run(
            [
                *(sys.executable, "-m", "gpuscale.cli.main", "conform", f"hpa/{NAME}"),
                *(f"--namespace={NAME}", f"--kubeconfig={self.plane.kubeconfig('reader')}"),
                *("--idle=3", "--steady=4", *agents, *arguments),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def _start(self, stack) -> None:
        super()._start(stack)
        over = threading.Event()
        placer = threading.Thread(target=self._place_until, args=(over,))
        placer.start()
        stack.callback(placer.join)
        stack.callback(over.set)

    def _place_until(self, over) -> None:
        while not over.wait(0.5):
            with suppress(Exception):  # a look that fails is taken again
                self.place()


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory):
    with Conformed(tmp_path_factory.mktemp("conform")) as running:
        running.plane.apply(ROLE.read_text())
        running.plane.kubectl(
            *("create", "clusterrolebinding", "gpuscale-doctor"),
            *("--clusterrole=gpuscale-doctor", "--user=reader"),
        )
        running.one_pod()
        yield running


def test_a_workload_that_scales_on_its_devices_is_shown_to(loop, tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    before = loop.plane.get("hpa", NAME, "-n", NAME)["spec"]
    with endpoint(200, loop.work_first) as url:
        done = loop.conform(f"--load-url={url}", f"--output-dir={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("pod_autoscaling: shown\n")
    assert "accelerator_metrics: shown\n" in done.stdout
    found = json.loads((folder / "evidence.json").read_text())
    assert [each["id"] for each in found["steps"] if not each["passed"]] == []
    wanted = [look["wanted"] for part in found["looks"].values() for look in part]
    assert (wanted[0], max(wanted), wanted[-1]) == (1, 2, 1)
    assert found["hpa"] == loop.plane.get("hpa", NAME, "-n", NAME)["spec"] == before
    cases = list(ET.parse(folder / "junit.xml").iter("testcase"))
    assert len(cases) == len(found["steps"])
    part = (folder / "PRODUCT.part.yaml").read_text()
    assert "id: pod_autoscaling" in part
    assert "id: accelerator_metrics" in part


def test_load_that_no_device_works_for_shows_nothing(loop) -> None:
    loop.rests()
    with endpoint(200, lambda: None) as url:
        done = loop.conform(f"--load-url={url}", "--out-within=8")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL  load" in done.stdout
    assert "FAIL  out" in done.stdout
    assert "SKIP  in" in done.stdout


def test_without_room_no_load_is_made(loop) -> None:
    loop.rests()
    least = json.dumps({"spec": {"maxReplicas": 1}})
    loop.plane.kubectl("patch", f"hpa/{NAME}", f"-n={NAME}", "--type=merge", "-p", least)
    asked = []
    with endpoint(200, lambda: asked.append(1)) as url:
        done = loop.conform(f"--load-url={url}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL  room" in done.stdout
    assert asked == []


def test_an_hpa_that_is_not_there_is_said_with_those_that_are(loop) -> None:
    done = loop.conform("--load-wait", "--namespace=by-object")
    assert done.returncode == 2
    assert f"found no hpa/by-object/{NAME}, expected one of: hpa/by-object/by-object" in done.stderr
