"""What `gpuscale simulate` prints and writes, and that it writes files whole or not at all."""

import contextlib
import json
import os
import pty
import resource
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from pyarrow import parquet

GPUSCALE = Path(sys.executable).parent / "gpuscale"
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it


def simulate(*arguments, cwd=None, **options):
    return subprocess.run(
        [GPUSCALE, "simulate", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=cwd,
        check=False,
        **options,
    )


def files_of_at_most(size):
    """Return options with which no file grows beyond a size: what a full disk looks like to a writer."""
    return {
        "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        # Python before 3.12 would keep the cut bytecode of a module, and fail to read it ever after.
        "env": {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    }


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_run_is_printed_as_json_or_as_yaml() -> None:
    as_json = simulate("ack-bert", "-o", "json")
    as_yaml = simulate("ack-bert", "--output", "yaml")
    assert (as_json.returncode, as_json.stderr, as_yaml.stderr) == (0, "", "")
    assert json.loads(as_json.stdout) == yaml.safe_load(as_yaml.stdout)


def test_a_scenario_comes_from_standard_input() -> None:
    folder = files("gpuscale.lab.sim") / "scenarios" / "ack-bert"
    text = (folder / "scenario.yaml").read_text().replace("file: ", "file: shipped:ack-bert/")
    piped = simulate("-", "-o", "json", input=text)
    assert (piped.returncode, piped.stderr) == (0, "")
    assert piped.stdout == simulate("ack-bert", "-o", "json").stdout


def test_files_get_what_their_suffix_says_and_the_summary_is_printed(tmp_path: Path) -> None:
    result = simulate(
        "ack-bert", "--output-file", "a.json", "--output-file", "b.HTML", cwd=tmp_path
    )
    assert (result.returncode, result.stderr) == (0, "wrote a.json\nwrote b.HTML\n")
    assert "Duration " in result.stdout
    assert json.loads((tmp_path / "a.json").read_text())["scenario"] == "ack-bert"
    assert (tmp_path / "b.HTML").read_text().startswith("<!doctype html>")
    assert files_in(tmp_path) == ["a.json", "b.HTML"]


def test_parquet_files_hold_what_the_document_holds(tmp_path: Path) -> None:
    names = ("run.json", "run.parquet", "run.events.parquet")
    result = simulate("ack-bert", *(f"--output-file={name}" for name in names), cwd=tmp_path)
    assert (result.returncode, files_in(tmp_path)) == (0, sorted(names))
    document = json.loads((tmp_path / "run.json").read_text())
    table = parquet.read_table(tmp_path / "run.parquet")
    columns = (table.column(name).to_pylist() for name in ("series", "t", "value"))
    found = {(name, t): value for name, t, value in zip(*columns, strict=True)}
    times = document["series"].pop("t")
    assert found == {
        (name, t): value
        for name, values in document["series"].items()
        for t, value in zip(times, values, strict=True)
        if value is not None
    }
    assert table.num_rows == len(found)
    events = parquet.read_table(tmp_path / "run.events.parquet")
    assert events.to_pylist() == document["events"]
    rest = json.loads(events.schema.metadata[b"gpuscale.run"])
    assert rest["summary"] == document["summary"]


def test_a_disk_that_fills_leaves_no_parquet_file(tmp_path: Path) -> None:
    result = simulate(
        "ack-bert", "--output-file=run.parquet", cwd=tmp_path, **files_of_at_most(2_000)
    )
    assert (result.returncode, files_in(tmp_path)) == (1, [])
    assert result.stderr == "gpuscale: can't write run.parquet: File too large\n"


def test_the_old_spellings_work_and_say_so(tmp_path: Path) -> None:
    printed = simulate("ack-bert", "--json", "-")
    assert json.loads(printed.stdout) == json.loads(simulate("ack-bert", "-o", "json").stdout)
    assert printed.stderr == (
        "gpuscale: --json is deprecated; use -o json, or --output-file FILE.json\n"
    )
    result = simulate("ack-bert", "--json", "any.name", "--html", "page", cwd=tmp_path)
    assert result.returncode == 0
    assert "--html is deprecated; use --output-file FILE.html" in result.stderr
    assert json.loads((tmp_path / "any.name").read_text())["seed"] == 1
    assert (tmp_path / "page").read_text().startswith("<!doctype html>")
    assert simulate("ack-bert", "--html", "-").stdout.startswith("<!doctype html>")
    assert "--json" not in simulate("--help").stdout


def test_an_older_name_of_exact_still_says_what_has_no_formula(tmp_path: Path) -> None:
    rule = "{record: hot, expr: 'quantile(0.9, DCGM_FI_DEV_GPU_UTIL)'}"
    (tmp_path / "rules.yaml").write_text(f"groups: [{{name: g, rules: [{rule}]}}]")
    given = ("ack-bert-quick", "--prometheus-rules", "rules.yaml", "-o", "json")
    exact, lagged = (
        simulate(*given, "--fidelity", name, cwd=tmp_path) for name in ("exact", "lagged")
    )
    assert exact.stderr == ""
    assert lagged.stderr == (
        "gpuscale: simulated exactly, for lack of a formula:\n"
        "  the Prometheus rule hot (group g) asks for more of GPUs than one aggregation of one known field\n"
    )
    documents = json.loads(exact.stdout), json.loads(lagged.stdout)
    assert [each.pop("fidelity")["used"] for each in documents] == ["pipeline", "exact"]
    assert documents[0] == documents[1]
    assert "lagged" not in simulate("--help").stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "run.txt",
            "--output-file: found 'run.txt', expected a name that ends in .json, .html, .events.parquet or "
            ".parquet",
        ),
        ("no/run.json", "--output-file no/run.json: found no folder no; make it first"),
        ("folder.json", "--output-file: found a folder, folder.json, expected a file"),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_the_simulation(
    tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "folder.json").mkdir()
    result = simulate("ack-bert", "--output-file", name, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"gpuscale: {message}\n"


def test_a_disk_that_fills_leaves_every_file_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text("before")
    # A limit on the size of files stands for the disk: the document fits it, the report does not.
    result = simulate(
        "ack-bert",
        "--output-file",
        "a.json",
        "--output-file",
        "b.html",
        cwd=tmp_path,
        **files_of_at_most(40_000),
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "gpuscale: can't write b.html: File too large\n"
    assert files_in(tmp_path) == ["b.html"]
    assert (tmp_path / "b.html").read_text() == "before"


def test_links_and_modes_of_files_stay_and_devices_are_written_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("before")
    kept.chmod(0o600)
    link = tmp_path / "link.json"
    link.symlink_to(kept)
    assert simulate("ack-bert", "--output-file", str(link)).returncode == 0
    assert link.is_symlink()
    assert json.loads(kept.read_text())["scenario"] == "ack-bert"
    assert kept.stat().st_mode & 0o777 == 0o600
    told = simulate("ack-bert", "--json", "/dev/full")
    assert told.returncode == 1
    assert told.stderr.endswith("gpuscale: can't write /dev/full: No space left on device\n")
    assert '{"scenario": "ack-bert"' in simulate("ack-bert", "--json", "/dev/stdout").stdout


LONG = """
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: long}
spec:
  duration: 20d
  manifests:
    - file: shipped:ack-bert/deployment.yaml
    - file: shipped:ack-bert/hpa.yaml
  rules: {file: shipped:ack-bert/rules.yaml}
  pipeline: {style: ack}
  nodePools:
    - {name: gpu, gpuModel: Tesla V100-SXM2-16GB, gpus: 1, min: 1, max: 4}
  workloads:
    - deployment: bert-intent-detection
      service: {gpuSecondsPerRequest: 0.05}
      load: {shape: sine, mean: 8, amplitude: 6}
"""


def test_a_long_simulation_shows_a_bar_on_a_terminal_and_ctrl_c_leaves_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "long.yaml").write_text(LONG)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [GPUSCALE, "simulate", "long.yaml", "--output-file", "run.json"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=tmp_path,
        text=True,
        env={**os.environ, "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        shown = ""
        while "simulating" not in shown:
            shown += os.read(ours, 4096).decode()
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the terminal's other end is closed
            while os.read(ours, 4096):
                pass
        assert process.wait(60) == 130
    os.close(ours)
    assert files_in(tmp_path) == ["long.yaml"]
