"""A stranger goes through README and docs: what a page says to type prints what the page says.

Each page has a folder of its own with its files, and an empty home. Nothing of the tests is there:
gpuscale comes from `pip install .` without extras.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import pages

PAGE_LIMIT_S = 150
OWN_NETWORK = ("--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc")
"""Ports are then as the page has them, and what the page left running ends with its session."""


@pytest.mark.timeout(PAGE_LIMIT_S + 600)
@pytest.mark.parametrize("page", [p for p in pages.PAGES if pages.session(p)], ids=pages.page_name)
def test_commands_print_what_the_page_says(page, plain_venv, tmp_path: Path) -> None:
    folder, home, outputs = tmp_path / "folder", tmp_path / "home", tmp_path / "outputs"
    for made in (folder, home, outputs):
        made.mkdir()
    for name, text in pages.files(page).items():
        (folder / name).write_text(text)
    (folder / "docs").symlink_to(pages.ROOT / "docs")
    (folder / ".venv").symlink_to(plain_venv)
    commands = pages.session(page)

    done = subprocess.run(
        [
            "timeout",
            str(PAGE_LIMIT_S),
            *_namespaces(commands),
            "bash",
            "-c",
            _script(commands, outputs),
        ],
        cwd=folder,
        env={"PATH": f"{plain_venv}/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )

    for number, command in enumerate(commands):
        texts = [_text(outputs / f"{number}.{stream}") for stream in ("out", "err")]
        printed = "".join(texts).splitlines()
        assert command.stays or pages.matches(command.output, printed), (
            f"{command.text}\n" + "\n".join(printed)
        )
    assert done.returncode == 0, done.stdout + done.stderr


def _text(file):
    """Return what a command printed; nothing of one that the time did not reach."""
    return file.read_text() if file.exists() else ""


def _namespaces(commands):
    if not any(command.stays for command in commands):
        return ()
    unshare = ("unshare", *OWN_NETWORK, "--kill-child")
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        reason = "needs unshare and ip; install Debian's packages util-linux and iproute2"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    tried = subprocess.run([*unshare, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"needs the right to make a network of its own: {tried.stderr.strip()}")
    return unshare


def _script(commands, outputs):
    """Return one shell's session: a command sees what those before it left, as at a prompt."""
    up = ["ip link set lo up"] if any(command.stays for command in commands) else []
    runs = [
        f"{{ {command.text}\n}} >{outputs}/{number}.out 2>{outputs}/{number}.err </dev/null"
        for number, command in enumerate(commands)
    ]
    return "\n".join([*up, *runs, "exit 0"])
