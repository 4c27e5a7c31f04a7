"""The page about served policies: its files fit together, and its own policy is found and served."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "served-policies.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```\w+ title=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def gpuscale(folder, *words):
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "gpuscale.cli.main", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_lint_finds_nothing_wrong_in_the_pages_files(tmp_path):
    for name in ("triggers.yaml", "hpa.yaml"):
        (tmp_path / name).write_text(BLOCKS[name])
    done = gpuscale(tmp_path, "lint", "triggers.yaml", "hpa.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "policy-" not in done.stdout
    (tmp_path / "hpa.yaml").write_text(
        BLOCKS["hpa.yaml"].replace('tolerance: "0"', 'tolerance: "0.1"')
    )
    assert "policy-tolerance" in gpuscale(tmp_path, "lint", "triggers.yaml", "hpa.yaml").stdout


def test_a_policy_in_one_file_is_found_by_its_entry_point(tmp_path):
    (tmp_path / "steady_policy.py").write_text(BLOCKS["steady_policy.py"])
    info = tmp_path / "steady_policy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: steady_policy\nVersion: 1.0\n")
    groups = tomllib.loads(BLOCKS["steady_policy.toml"])["project"]["entry-points"]
    ((group, entries),) = groups.items()
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    triggers = BLOCKS["triggers.yaml"].replace("name: trend", "name: steady")
    (tmp_path / "triggers.yaml").write_text(triggers)
    (tmp_path / "hpa.yaml").write_text(BLOCKS["hpa.yaml"])
    refused = gpuscale(tmp_path, "lint", "triggers.yaml", "hpa.yaml")
    assert refused.returncode == 2
    where = "triggers.yaml:7: error [broken-file] triggers[0].policy.settings.spare"
    assert f"{where}\n  Found 'spare', expected one of headroom" in refused.stdout
    (tmp_path / "triggers.yaml").write_text(triggers.replace(", spare: 1", ""))
    done = gpuscale(tmp_path, "lint", "triggers.yaml", "hpa.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
