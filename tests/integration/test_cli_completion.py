"""Shells complete commands and flags with the script that we print."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
COMPLETE = """
source <(gpuscale completion bash)
COMP_WORDS=({words}); COMP_CWORD={last}
_gpuscale_completion gpuscale
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("gpuscale rend", {"render"}),
        ("gpuscale doctor --kubec", {"--kubeconfig"}),
        ("gpuscale doctor -o ''", {"text", "json", "yaml", "sarif", "junit"}),
        ("gpuscale metrics-api w", {"why"}),
        ("gpuscale exporter --collect-i", {"--collect-interval"}),
        ("gpuscale simulate aks", {"aks-mnist-jobs", "aks-mnist-jobs-quick"}),
        ("gpuscale doctor --context pr", {"prod", "preview"}),
    ],
)
def test_bash_completes(tmp_path: Path, words: str, expected) -> None:
    contexts = [{"name": name, "context": {}} for name in ("prod", "preview", "dev")]
    (tmp_path / "kubeconfig").write_text(json.dumps({"contexts": contexts}))
    script = COMPLETE.format(words=words, last=len(words.split()) - 1)
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": f"{BIN}:{os.environ['PATH']}", "KUBECONFIG": str(tmp_path / "kubeconfig")},
    )
    assert done.stderr == ""
    assert set(done.stdout.split()) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_reads_its_script(shell: str) -> None:
    done = subprocess.run(
        [BIN / "gpuscale", "completion", shell], capture_output=True, text=True, check=True
    )
    assert "_GPUSCALE_COMPLETE=complete_" in done.stdout
    if shutil.which(shell):  # bash is everywhere that these tests run
        check = {"fish": "--no-execute"}.get(shell, "-n")
        subprocess.run([shell, check], input=done.stdout, text=True, check=True)
