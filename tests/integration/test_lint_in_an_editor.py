"""`gpuscale lint --lsp`, spoken to as an editor speaks to a language server."""

import json
import subprocess
import sys

import pytest

RULES = """\
- seriesQuery: gpu_util{}
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 10
  metrics:
  - type: Pods
    pods: {metric: {name: gpu_use}, target: {type: AverageValue, averageValue: 70}}
"""


class Editor:
    """The editor's side of the protocol."""

    def __init__(self, process) -> None:
        self._process = process
        self._requests = 0

    def tell(self, method, **params) -> None:
        self._write({"method": method, "params": params})

    def tell_of(self, method, path) -> None:
        self.tell(f"textDocument/{method}", textDocument={"uri": path.as_uri()})

    def ask(self, method, **params):
        self._requests += 1
        self._write({"id": self._requests, "method": method, "params": params})
        answer = self.read()
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", self._requests)
        return answer

    def published(self, count):
        """Return what is published about so many files: lines from 0, severities and codes by URI."""
        found = {}
        for _ in range(count):
            message = self.read()
            assert message["method"] == "textDocument/publishDiagnostics"
            params = message["params"]
            found[params["uri"]] = [
                (each["range"]["start"]["line"], each["severity"], each.get("code"))
                for each in params["diagnostics"]
            ]
        return found

    def read(self):
        header = self._process.stdout.readline()
        assert header.startswith(b"Content-Length: ")
        assert self._process.stdout.readline() == b"\r\n"
        return json.loads(self._process.stdout.read(int(header.split()[1])))

    def _write(self, message) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._process.stdin.flush()


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "with a blank"
    inside.mkdir()
    (inside / "rules.yaml").write_text(RULES)
    (inside / "hpa.yaml").write_text(HPA)
    (inside / "compose.yaml").write_text("services: {}\n")
    return inside


@pytest.fixture
def editor(folder):
    command = [sys.executable, "-m", "gpuscale.cli.main", "lint", "--lsp", "rules.yaml"]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        editor = Editor(process)
        can = editor.ask("initialize", capabilities={})["result"]["capabilities"]
        assert can["textDocumentSync"] == {"openClose": True, "save": True}
        editor.tell("initialized")
        yield editor
        assert editor.ask("shutdown")["result"] is None
        editor.tell("exit")
        assert process.wait(20) == 0


def test_findings_come_with_an_open_file_and_go_with_a_mended_one(editor, folder) -> None:
    hpa, rules = folder / "hpa.yaml", folder / "rules.yaml"
    editor.tell_of("didOpen", hpa)
    assert editor.published(2) == {hpa.as_uri(): [(8, 1, "unknown-metric")], rules.as_uri(): []}
    hpa.write_text(HPA.replace("gpu_use", "gpu_util"))
    editor.tell_of("didSave", hpa)
    assert editor.published(2) == {hpa.as_uri(): [], rules.as_uri(): []}
    hpa.write_text(HPA)
    editor.tell_of("didSave", hpa)
    editor.published(2)
    editor.tell_of("didClose", hpa)
    assert editor.published(1) == {hpa.as_uri(): []}


def test_files_of_another_kind_have_no_findings(editor, folder) -> None:
    compose = folder / "compose.yaml"
    editor.tell_of("didOpen", compose)
    assert editor.published(2)[compose.as_uri()] == []


def test_what_it_does_not_know_is_answered(editor) -> None:
    editor.tell("$/setTrace", value="off")  # a notification, which has no answer
    assert editor.ask("textDocument/hover")["error"]["code"] == -32601
