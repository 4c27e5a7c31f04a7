"""SQL on a history reads its tables and nothing else of the machine, changes nothing, and comes to an end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.ops.history.reading import History
from gpuscale.ops.history.writing import MIB, HistoryWriter

START_MS = 1_767_225_600_000
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("histories") / "it's kept"
    hpas = [
        (
            START_MS + minute * MINUTE_MS,
            "prod",
            "chat",
            "queue",
            5 * times,
            5,
            times,
            wanted,
            *[None] * 4,
        )
        for minute, (times, wanted) in enumerate([(1, 2), (2, 4), (1, 4), (0.2, 1)])
    ]
    with HistoryWriter(folder, 64 * MIB) as writer:
        writer.write({"hpas": hpas[:2]})
        writer.compact()
        writer.write({"hpas": hpas[2:]})
    return folder


@pytest.fixture(scope="module")
def history(folder: Path) -> Iterator[History]:
    with History(str(folder), timeout_s=30, memory_mib=128) as history:
        yield history


def rows(history: History, sql: str) -> list[tuple[object, ...]]:
    with history.ask(sql) as answer:
        return [tuple(row) for row in answer.rows]


def test_decisions_are_the_changes_of_what_an_hpa_wants(history: History) -> None:
    asked = 'SELECT strftime(time, \'%M\'), hpa, "from", "to", metric, value, target FROM decisions'
    assert rows(history, asked) == [
        ("01", "chat", 2, 4, "queue", 10, 5),
        ("03", "chat", 4, 1, "queue", 1, 5),
    ]


def test_a_table_can_be_described(history: History) -> None:
    assert rows(history, "DESCRIBE hpas")[:2] == [
        ("time", "TIMESTAMP", "YES", None, None, None),
        ("namespace", "VARCHAR", "YES", None, None, None),
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "COPY hpas TO '{dir}/out.csv'",
        "COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)",
        "ATTACH '{dir}/other.db'",
        "INSTALL httpfs",
        "LOAD '/tmp/x.duckdb_extension'",
        "SET memory_limit = '9GB'",
        "RESET lock_configuration",
        "PRAGMA enable_external_access",
        "CREATE TABLE mine AS SELECT 1",
        "DROP VIEW hpas",
        "INSERT INTO new_hpas SELECT * EXCLUDE (day) FROM hpas",
        "EXPORT DATABASE '{dir}/out'",
        "CALL pragma_version()",
        "PREPARE p AS SELECT 1",
        "SELECT 1; SELECT 2",
        "-- nothing",
    ],
)
def test_only_one_select_is_answered(history: History, folder: Path, sql: str) -> None:
    file = next(folder.glob("hpas/*/*.parquet"))
    before = file.read_bytes()
    with pytest.raises(UsageError, match="expected one SELECT: a history is only read"):
        rows(history, sql.format(dir=folder.parent, file=str(file).replace("'", "''")))
    assert file.read_bytes() == before
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize(
    "of",
    [
        "read_csv('/etc/passwd')",
        "read_text('/etc/passwd')",
        "read_blob('/proc/self/environ')",
        "sniff_csv('/etc/passwd')",
        "glob('/etc/*')",
        "read_parquet('https://example.com/x.parquet')",
        "read_json('s3://bucket/x.json')",
        "query('FROM read_text(''/etc/passwd'')')",
    ],
)
def test_files_outside_are_not_read(history: History, of: str) -> None:
    with pytest.raises(UsageError, match=r"outside the history|does not exist|extension"):
        rows(history, f"SELECT * FROM {of}")


def test_a_file_is_no_table(history: History) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        rows(history, "SELECT * FROM '/etc/passwd'")


def test_a_question_that_does_not_end_is_given_up(folder: Path) -> None:
    endless = (
        "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range + b.range = -1"
    )
    with (
        History(str(folder), timeout_s=0.2) as history,
        pytest.raises(UnavailableError, match=r"gave up after 0\.2 s"),
    ):
        rows(history, endless)


def test_a_question_that_takes_too_much_memory_is_given_up(history: History) -> None:
    with pytest.raises(UnavailableError, match="took more memory than it may"):
        rows(history, "SELECT list(range) FROM range(100000000)")
    assert rows(history, "SELECT count(*) FROM hpas") == [(4,)]  # the next one is answered


def test_wrong_sql_says_where(history: History) -> None:
    with pytest.raises(UsageError, match="syntax error at or near"):
        rows(history, "SELEC 1")


def test_there_is_no_history(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="keep one with: gpuscale history keep"):
        History(str(tmp_path))
    with pytest.raises(UsageError, match="expected a folder, or one of s3://"):
        History("ftp://example.com/x")
