import os
from pathlib import Path

import pytest

from gpuscale.base.watched_files import FileLook, LastGood, stamps_of


def number(path: Path) -> LastGood[int]:
    return LastGood([path], lambda: int(path.read_text()), (OSError, ValueError))


def test_a_bad_file_leaves_the_last_good_value_and_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_text("1")
    file = number(path)
    assert (file.look(), file.value, file.fault) == (FileLook.UNCHANGED, 1, None)
    path.write_text("twelve")
    for _ in range(2):
        assert (file.look(), file.value) == (FileLook.FAILED, 1)
        assert str(file.fault) == "invalid literal for int() with base 10: 'twelve'"
    path.write_text("222")
    assert (file.look(), file.value, file.fault) == (FileLook.LOADED, 222, None)


def test_a_file_that_is_as_it_was_has_no_fault_any_more(tmp_path: Path) -> None:
    path, away = tmp_path / "number", tmp_path / "away"
    path.write_text("1")
    file = number(path)
    path.rename(away)
    assert file.look() is FileLook.FAILED
    assert isinstance(file.fault, FileNotFoundError)
    away.rename(path)
    look = file.look()
    assert look is FileLook.UNCHANGED
    assert file.fault is None


def test_the_first_load_raises_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        number(tmp_path / "number")


def test_a_link_that_is_turned_is_a_change_though_times_and_sizes_are_alike(tmp_path: Path) -> None:
    for name, text in (("old", "1"), ("new", "2")):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, ns=(0, 0))
    link, turned = tmp_path / "link", tmp_path / "turned"
    link.symlink_to("old")
    before, file = stamps_of([link]), number(link)
    turned.symlink_to("new")
    turned.rename(link)
    assert stamps_of([link]) != before
    assert (file.look(), file.value) == (FileLook.LOADED, 2)
