"""Doors: a name loads what is behind it and no more, and the contract sees who goes round them."""

import subprocess
import sys
from pathlib import Path

import pytest
from grimp import build_graph

from door_contract import DoorContract

ROOM = '''\
"""A room."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from town.{house}.room.one import ONE
    from town.{house}.room.two import TWO
else:
    __getattr__ = door(__name__)

__all__ = ["ONE", "TWO"]
'''


@pytest.fixture
def town(tmp_path, monkeypatch):
    """Two houses of a room each, both with a door to two names."""
    for house in ("low", "high"):
        room = tmp_path / "src" / "town" / house / "room"
        room.mkdir(parents=True)
        (room / "__init__.py").write_text(ROOM.format(house=house))
        (room / "one.py").write_text("ONE = 1\n")
        (room / "two.py").write_text("TWO = 2\n")
        (room.parent / "__init__.py").touch()
    (tmp_path / "src" / "town" / "__init__.py").touch()
    (tmp_path / "src" / "town" / "outside.py").write_text("from town.high.room import ONE, TWO\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "src")
    return tmp_path / "src" / "town"


def run(town: Path, program: str) -> str:
    path = [str(town.parent), *sys.path]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_name_loads_its_module_alone(town) -> None:
    loaded = "print(sorted(each for each in sys.modules if each.startswith('town.low.room.')))"
    assert run(town, f"import town.low.room\n{loaded}") == "[]"
    assert run(town, f"from town.low.room import TWO\n{loaded}") == "['town.low.room.two']"


def test_modules_of_a_room_are_found_beside_its_names(town) -> None:
    assert run(town, "from town.low.room import one\nprint(one.ONE)") == "1"


def test_whoever_looks_around_sees_the_names(town) -> None:
    program = "import town.low.room\nprint({'ONE', 'TWO'} <= {*dir(town.low.room)})"
    assert run(town, program) == "True"


def test_what_is_not_there_is_said_as_python_says_it(town) -> None:
    program = (
        "try:\n    from town.low.room import three\nexcept ImportError as error:\n    print(error)"
    )
    assert run(town, program).startswith("cannot import name 'three' from 'town.low.room'")


def faults(town: Path) -> list[str]:
    options = {"root": "town", "open": [], "promised": []}
    contract = DoorContract("doors", {}, options)
    return contract.check(build_graph("town", cache_dir=None), verbose=False).metadata["faults"]


def test_the_contract_sees_who_goes_round_a_door_and_names_nobody_asks_for(town) -> None:
    assert faults(town) == [
        "town.low.room offers ONE, which no other house imports",
        "town.low.room offers TWO, which no other house imports",
    ]
    (town / "high" / "room" / "one.py").write_text("from town.low.room import ONE, TWO\n")
    assert faults(town) == []
    (town / "high" / "room" / "two.py").write_text("\nfrom town.low.room.two import TWO\n")
    where = "town.high.room.two:2 imports TWO of town.low.room.two"
    assert faults(town) == [f"{where}, no name of its door"]
    (town / "high" / "room" / "two.py").write_text(
        "def late():\n    from town.low.room import two\n"
    )
    where = "town.high.room.two:2 imports two of town.low.room"
    assert faults(town) == [f"{where}, no name of its door"]


def test_a_house_may_enter_its_own_rooms_by_their_modules(town) -> None:
    (town / "low" / "keeper.py").write_text("from town.low.room.two import TWO\n")
    (town / "outside.py").write_text(
        "from town.high.room import ONE, TWO\nfrom town.low.room import ONE as A, TWO as B\n"
    )
    assert faults(town) == []
