"""The supervisor with programs of the system: whoever ends, the program ends too."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gpuscale_testing import supervisor, wait_until
from gpuscale_testing.component import Component

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def child_of(pid: int) -> int:
    def look():
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    return int(wait_until(look, "the program to start", every_s=0.01)[0])


@pytest.fixture
def sleeping(tmp_path: Path):
    component = Component("sleep", ["sleep", "60"], tmp_path / "plane", grace_s=5.0)
    yield component
    component.end_stop()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "plane").mkdir()


def test_stopping_ends_the_program_and_keeps_the_folder(sleeping, tmp_path: Path) -> None:
    program = child_of(sleeping.pid)
    sleeping.end_stop()
    assert not is_running(program)
    assert sleeping.exit_code == 128 + signal.SIGTERM
    assert (tmp_path / "plane").is_dir()


def test_a_program_that_does_not_mind_sigterm_is_killed_after_the_grace_period(
    tmp_path: Path,
) -> None:
    component = Component("stubborn", ["bash", "-c", STUBBORN], tmp_path / "plane", grace_s=0.1)
    wait_until(lambda: "ready" in component.log_tail(), "the trap to be set", every_s=0.01)
    component.end_stop()
    assert component.exit_code == 128 + signal.SIGKILL


def test_a_program_is_killed_without_a_word_and_started_again(tmp_path: Path) -> None:
    script = "trap 'echo goodbye; exit' TERM; echo ready; while :; do sleep 0.05; done"
    component = Component("polite", ["bash", "-c", script], tmp_path / "plane", grace_s=5.0)
    wait_until(lambda: component.log_tail() == "ready\n", "the trap to be set", every_s=0.01)
    program = child_of(component.pid)
    component.kill()
    component.kill()
    assert not is_running(program)
    assert component.exit_code == 128 + signal.SIGKILL
    component.restart()
    wait_until(lambda: component.log_tail() == "ready\n" * 2, "the second start", every_s=0.01)
    assert component.exit_code is None
    component.restart()
    wait_until(lambda: component.log_tail().endswith("goodbye\nready\n"), "the third start")
    component.end_stop()
    assert component.log_tail() == "ready\nready\ngoodbye\nready\ngoodbye\n"


def test_the_exit_code_and_the_output_are_the_programs(tmp_path: Path) -> None:
    command = ["bash", "-c", "echo out; echo err >&2; exit 3"]
    component = Component("short", command, tmp_path / "plane", grace_s=1.0)
    wait_until(lambda: component.exit_code is not None, "the program to end", every_s=0.01)
    component.end_stop()
    assert component.exit_code == 3
    assert component.log_tail() == "out\nerr\n"


def test_a_killed_starter_takes_the_program_and_the_folder_along(tmp_path: Path) -> None:
    script = f"""
        import sys, time
        from pathlib import Path
        from gpuscale_testing.component import Component
        component = Component("sleep", ["sleep", "60"], Path({str(tmp_path / "plane")!r}), 5.0)
        print(component.pid, flush=True)
        time.sleep(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    ) as starter:
        pid = int(starter.stdout.readline())
        program = child_of(pid)
        starter.kill()
    wait_until(lambda: not is_running(program), "the program to end", 5.0, every_s=0.01)
    wait_until(lambda: not (tmp_path / "plane").exists(), "the folder to go", 5.0, every_s=0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_a_killed_supervisor_takes_the_program_along(sleeping) -> None:
    program = child_of(sleeping.pid)
    os.kill(sleeping.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(program), "the program to end", 5.0, every_s=0.01)


def test_an_interrupt_from_the_terminal_leaves_the_program_to_its_starter(sleeping) -> None:
    program = child_of(sleeping.pid)
    os.kill(sleeping.pid, signal.SIGINT)
    assert is_running(program)
    assert os.getsid(sleeping.pid) != os.getsid(0)


def test_the_supervisor_needs_the_standard_library_alone() -> None:
    lines = Path(supervisor.__file__).read_text().splitlines()
    imported = {
        line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))
    }
    assert imported <= sys.stdlib_module_names
