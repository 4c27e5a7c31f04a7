"""`gpuscale mcp` over a pipe, asked by the library's own client."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from gpuscale.base.errors import UsageError
from gpuscale.cli.commands.mcp import Calls
from live_loop import Loop

GPUSCALE = str(Path(sys.executable).parent / "gpuscale")
HPA = """apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: vision}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: vision}
  maxReplicas: 4
  metrics:
  - type: Pods
    pods: {metric: {name: no_such_metric}, target: {type: AverageValue, averageValue: "60"}}
"""


def client(*arguments: str) -> Client:
    return Client(stdio_client(StdioServerParameters(command=GPUSCALE, args=["mcp", *arguments])))


async def ask(at: Client, tool: str, **arguments: object) -> tuple[str, bool]:
    found = await at.call_tool(tool, arguments)
    (content,) = found.content
    assert content.type == "text"
    return content.text, found.is_error


def printed(*arguments: str, folder: Path) -> str:
    return subprocess.run(
        [GPUSCALE, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    ).stdout


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    running = Loop(tmp_path_factory.mktemp("loop"), "ack-bert", "--speed", "60")
    try:
        running.wait("SuccessfulRescale", 60)
        yield running
    finally:
        running.kill()


async def test_tools_answer_of_a_cluster_and_its_prometheus(loop: Loop) -> None:
    kubeconfig = loop.wait(r"KUBECONFIG=(\S+)", 1)[1]
    hpa = "gpu-hpa"
    async with client(f"--kubeconfig={kubeconfig}", f"--prometheus-url={loop.url}") as at:
        tools = {each.name: each for each in (await at.list_tools()).tools}
        assert tools["decide"].input_schema["required"] == ["what"]
        assert all(each.annotations and each.annotations.read_only_hint for each in tools.values())
        for tool, arguments, key in (
            ("decide", {"what": [f"hpa/{hpa}"]}, "desiredReplicas"),
            ("doctor", {}, "findings"),
            ("top", {"namespace": "default"}, "workloads"),
            ("report", {"since": "5m"}, "incidents"),
            ("money", {"since": "1h", "by": "namespace,gpu"}, "lines"),
        ):
            text, is_error = await ask(at, tool, **arguments)
            assert not is_error, text
            assert f'"{key}"' in text, text
            json.loads(text)
        text, is_error = await ask(at, "why", whose="pods/default/*", metric="gone")
        assert not is_error
        assert json.loads(text)["failedHop"]


async def test_files_of_its_folders_are_judged_as_the_command_does(tmp_path: Path) -> None:
    (tmp_path / "hpa.yaml").write_text(HPA)
    async with client(str(tmp_path)) as at:
        text, is_error = await ask(at, "lint", files=["hpa.yaml"])
        assert not is_error  # findings are an answer
        assert text == printed("lint", "hpa.yaml", "-o", "json", folder=tmp_path)
        text, is_error = await ask(at, "decide", what=["hpa.yaml"])
        assert is_error
        assert text == printed("decide", "hpa.yaml", "-o", "json", folder=tmp_path)
        text, is_error = await ask(at, "lint", files=["gone.yaml"])
        assert is_error
        assert "gone.yaml: no such file" in text
        text, is_error = await ask(at, "money")
        assert (is_error, "start gpuscale mcp with --prometheus-url" in text) == (True, True)


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("lint", {"files": ["/etc/passwd"]}, "expected a file in "),
        ("lint", {"files": ["../secret.yaml"]}, "expected a file in "),
        ("lint", {"files": ["link.yaml"]}, "expected a file in "),
        ("lint", {"files": ["hpa.yaml"], "baseline": "/etc/passwd"}, "expected a file in "),
        ("decide", {"what": ["/etc/passwd"]}, "expected a file in "),
        ("money", {"instance_types": "/etc/passwd"}, "expected a file in "),
        ("lint", {"files": "hpa.yaml"}, "files: found 'hpa.yaml', expected array"),
        ("lint", {"live": "yes"}, "live: found 'yes', expected boolean"),
        ("money", {"most": "3"}, "most: found '3', expected integer"),
        ("money", {"most": True}, "most: found True, expected integer"),
        ("lint", {"write_baseline": "x"}, "found 'write_baseline', expected some of files, live"),
        ("decide", {"what": ["hpa/a"], "kubeconfig": "k"}, "found 'kubeconfig', expected some of"),
        ("doctor", {"fix": True}, "found 'fix', expected some of namespace"),
        ("report", {"prometheus_url": "http://x"}, "found 'prometheus_url', expected some of"),
        ("install", {}, "found no tool 'install', expected one of decide, doctor"),
    ],
)
def test_what_a_call_can_not_ask_for(tmp_path: Path, tool, arguments, told) -> None:
    folder = tmp_path / "deploy"
    folder.mkdir()
    (tmp_path / "secret.yaml").write_text(HPA)
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(UsageError) as refused:
        Calls([folder], {}).words(tool, arguments)
    assert told in str(refused.value)


def test_values_never_become_options(tmp_path: Path) -> None:
    calls = Calls([tmp_path], {"prometheus_url": "http://p"})
    assert calls.words("decide", {"what": ["--save=x"], "namespace": "--watch"}) == [
        *("decide", "--output=json", "--namespace=--watch", "--", "--save=x"),
    ]
    assert calls.words("money", {"gpu_price": ["--until=x", "*=2"]}) == [
        *("money", "--output=json", "--gpu-price=--until=x", "--gpu-price=*=2"),
        *("--prometheus-url=http://p", "--"),
    ]
    assert calls.words("money", {"savings": True, "most": 3}) == [
        *("money", "--output=json", "--savings", "--most=3", "--prometheus-url=http://p", "--"),
    ]


def test_without_a_folder_no_file_is_read() -> None:
    with pytest.raises(UsageError, match="started without a FOLDER"):
        Calls([], {}).words("lint", {"files": ["hpa.yaml"]})
    assert Calls([], {}).words("decide", {"what": ["hpa", "vision"]})[-2:] == ["hpa", "vision"]
