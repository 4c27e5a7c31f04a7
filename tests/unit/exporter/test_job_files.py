"""Job files of a workload manager: which count, and what can be wrong with them."""

import logging
import os

from gpuscale.agent.exporter.job_files import JobFiles


def test_files_named_after_gpus_and_instances_count(tmp_path) -> None:
    os.mkfifo(tmp_path / "5")
    (tmp_path / "6").symlink_to(tmp_path / "0")
    (tmp_path / "7").symlink_to(tmp_path / "7")
    (tmp_path / "0").write_text("job1\njob2\n\njob1\n")
    (tmp_path / "3.10").write_text("job3")
    (tmp_path / "2").mkdir()
    (tmp_path / "4").write_text("\n")
    assert JobFiles(tmp_path).read(["0", "1", "2", "3.10", "4", "5", "6", "7"]) == {
        "0": ("job1", "job2"),
        "3.10": ("job3",),
        "6": ("job1", "job2"),
    }


def test_files_of_other_gpus_hide_none(tmp_path) -> None:
    for number in range(2_000):
        (tmp_path / str(number)).write_text(f"job{number}")
    assert JobFiles(tmp_path).read(["2", "999"]) == {"2": ("job2",), "999": ("job999",)}


def test_missing_folder_is_logged_once_and_read_when_it_comes(tmp_path, caplog) -> None:
    folder = tmp_path / "jobs"
    files = JobFiles(folder)
    with caplog.at_level(logging.WARNING):
        assert files.read(["0"]) == files.read(["0"]) == {}
    assert len(caplog.messages) == 1
    folder.mkdir()
    (folder / "0").write_text("job1")
    assert files.read(["0"]) == {"0": ("job1",)}


def test_endless_file_is_cut_short(tmp_path) -> None:
    (tmp_path / "0").write_text("\n".join(f"job{n}" for n in range(100_000)))
    assert len(JobFiles(tmp_path).read(["0"])["0"]) == 256
