"""The figures of tools/house.py, on a tree whose figures can be counted by hand."""

from pathlib import Path

import pytest

import house


@pytest.fixture
def folder(tmp_path: Path):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.py").write_text(
        '"""One."""\n\nimport os\n\n\nclass Row:\n    def _size(self):\n'
        '        """Two,\n        three."""\n        return os.sep\n'
    )
    (tree / "b.py").write_text("# four\nclass Row:\n    pass\n\n\nNEVER = 1\nprint(Row)\n")
    return tree


def test_lines_functions_and_prose_are_counted(folder) -> None:
    found = house.figures(folder)
    assert found["modules / lines"] == "2 / 17"
    assert found["function median / p90 / max"] == "2 / 2 / 2"  # four lines, two of them docstring
    assert found["private share of functions"] == "100 %"
    assert found["import lines"] == "5.9 %"  # 1 of 17
    assert found["docstring lines"] == "17.6 %"  # 3 of 17
    assert found["`#` comment lines"] == "5.9 %"


def test_names_with_two_meanings_and_without_use_are_named(folder) -> None:
    found = house.figures(folder)
    assert found["class names defined more than once"] == "1: Row 2"
    assert found["unused names"] == "1: b.NEVER"


def test_a_folder_of_sixteen_modules_is_flat(folder) -> None:
    for number in range(14):
        (folder / f"m{number}.py").touch()
    (folder / "__init__.py").touch()
    assert house.figures(folder)["flat folders > 15 modules"] == "1: tree 16"
    (folder / "m0.py").unlink()
    assert house.figures(folder)["flat folders > 15 modules"] == "0"
