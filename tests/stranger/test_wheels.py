"""The wheels of the agent and of the servers, each alone in an environment of its own, at work together."""

import subprocess
import time
import urllib.error
import urllib.request

import pytest
from aiohttp.test_utils import unused_port


@pytest.fixture
def commands(agent_venv, server_venv):
    """Return the `gpuscale` of each wheel."""
    venvs = {"gpuscale-agent": agent_venv, "gpuscale-server": server_venv}
    return {part: str(venv / "bin" / "gpuscale") for part, venv in venvs.items()}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def answer_of(url, within_s=60):
    """Return what a server answers, once it does so with 200."""
    end = time.monotonic() + within_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.read().decode()
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("part", "command", "message"),
    [
        ("gpuscale-agent", "doctor", "found 'doctor', but only the node agent is installed here"),
        ("gpuscale-server", "doctor", "doctor is not in this part of gpuscale"),
        ("gpuscale-server", "exporter", "exporter is not in this part of gpuscale"),
    ],
)
def test_a_command_of_another_part_is_refused(commands, part, command, message) -> None:
    done = run(commands[part], command)
    assert done.returncode == 2
    assert done.stderr.startswith(f"gpuscale: {message}")
    assert done.stderr.endswith("pip install gpuscale\n")


def test_help_has_the_commands_that_are_there(commands) -> None:
    text = run(commands["gpuscale-server"], "--help").stdout
    assert "metrics-api" in text
    assert "scaler" in text
    assert "doctor" not in text
    assert "gpuscale exporter" in run(commands["gpuscale-agent"], "--help").stdout


def test_the_servers_wheel_serves_what_the_agents_wheel_measures(commands, tmp_path) -> None:
    agent_port, port = unused_port(), unused_port()
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "externalRules:\n- seriesQuery: 'DCGM_FI_DEV_GPU_UTIL'\n  resources: {namespaced: false}\n"
        "  name: {as: gpu_util}\n  metricsQuery: 'avg(<<.Series>>{<<.LabelMatchers>>})'\n"
    )
    agent = [
        *(commands["gpuscale-agent"], "exporter", "--gpu", "simulated:NVIDIA H200:2"),
        *(
            "-a",
            f"127.0.0.1:{agent_port}",
            "--collect-interval",
            "1s",
            "--stream-interval",
            "100ms",
        ),
    ]
    server = [
        *(commands["gpuscale-server"], "metrics-api", "--source", "streams"),
        *("--agent", f"127.0.0.1:{agent_port}", "--config", str(rules)),
        *("--secure-port", "0", "--insecure-loopback-port", str(port)),
    ]
    with (
        subprocess.Popen(agent, stderr=subprocess.PIPE) as serving,
        subprocess.Popen(server, stderr=subprocess.PIPE) as answering,
    ):
        try:
            assert "DCGM_FI_DEV_GPU_UTIL{" in answer_of(f"http://127.0.0.1:{agent_port}/metrics")
            group = f"http://127.0.0.1:{port}/apis/external.metrics.k8s.io/v1beta1"
            assert '"metricName":"gpu_util"' in answer_of(f"{group}/namespaces/default/gpu_util")
        finally:
            for process in (serving, answering):
                process.terminate()
