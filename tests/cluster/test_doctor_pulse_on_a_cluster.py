"""`gpuscale doctor --pulse` on the whole loop of real parts: load at one end, a ready pod at the other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale_testing import wait_until

sys.path.insert(0, str(Path(__file__).parent))
import real_loop
from endpoints import endpoint
from loaded_loop import LIMIT_S, NAME, ROLE, LoadedLoop

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]

HOPS = ["gpu", "value", "hpa", "created", "scheduled", "ready"]


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory):
    with LoadedLoop(tmp_path_factory.mktemp("pulse")) as running:
        running.plane.apply(ROLE.read_text())
        running.plane.kubectl(
            *("create", "clusterrolebinding", "gpuscale-doctor"),
            *("--clusterrole=gpuscale-doctor", "--user=reader"),
        )
        most = json.dumps({"spec": {"maxReplicas": 16}})
        running.plane.kubectl("patch", f"hpa/{NAME}", f"-n={NAME}", "--type=merge", "-p", most)
        yield running


def test_several_hpas_are_named_to_choose_from(loop) -> None:
    done = loop.run("--pulse-wait")
    assert done.returncode == 2
    for name in real_loop.REPLICAS:
        assert f"{name}/{name}" in done.stderr


def test_load_that_does_not_arrive_is_stuck_at_the_gpu(loop) -> None:
    loop.settle()
    with endpoint(503, lambda: None) as url:
        done = loop.run(f"--pulse-hpa={NAME}/{NAME}", f"--pulse-url={url}", "--pulse-for=5")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "stuck at: GPU at agent\n  | no request was answered well: status 503" in done.stdout
    assert "-l app=by-pods" in done.stdout


def test_load_becomes_a_ready_pod_and_every_hop_has_its_time(loop) -> None:
    loop.settle()
    before = {pod["metadata"]["uid"] for pod in loop.plane.get("pods", "-n", NAME)["items"]}
    asked = []

    def work() -> None:
        asked.append(1)
        loop.work()

    with endpoint(200, work) as url:
        done = loop.run(
            f"--pulse-hpa={NAME}/{NAME}", f"--pulse-url={url}", "--pulse-for=120", "--output=json"
        )
        count = len(asked)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["about"], found["through"], found["stuck"]) == (f"hpa/{NAME}/{NAME}", True, None)
    assert [each["hop"] for each in found["hops"]] == HOPS
    after = [each["after_s"] for each in found["hops"]]
    assert after == sorted(after)
    assert 0 < found["load"]["answered"] <= count
    pods = loop.plane.get("pods", "-n", NAME)["items"]
    assert {pod["metadata"]["uid"] for pod in pods} > before


def test_load_of_somebody_else_is_watched(loop) -> None:
    loop.settle()
    command = loop.command(f"--pulse-hpa={NAME}/{NAME}", "--pulse-wait", "--pulse-for=120")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            told = running.stderr.readline()
            assert "start the load now" in told
            wait_until(
                lambda: loop.work() or running.poll() is not None, "doctor to end", 2 * LIMIT_S
            )
            text = running.stdout.read()
        finally:
            running.kill()
    assert running.returncode == 0, text
    first, _, *rows = text.splitlines()
    assert first.startswith(f"hpa/{NAME}/{NAME}: seconds since the first change")
    assert [line.split()[-1].strip("#") for line in rows[:6]] == [""] * 6
    assert rows[6:] == ["all hops moved"]


def test_pods_that_a_quota_refuses_are_stuck_at_their_creation(loop) -> None:
    """The last one: its controller only tries again after ever longer times."""
    loop.settle()
    loop.plane.kubectl("create", "quota", "few", "--hard=pods=1", f"-n={NAME}")
    counted = "jsonpath={.status.hard.pods}=1"
    loop.plane.wait("quota/few", counted, f"-n={NAME}", timeout_s=LIMIT_S)
    with endpoint(200, loop.work) as url:
        done = loop.run(f"--pulse-hpa={NAME}/{NAME}", f"--pulse-url={url}", "--pulse-for=45")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "stuck at: pod created\n  | " in done.stdout
    assert "exceeded quota: few" in done.stdout
