# ruff: noqa: RUF009
"""Settings as fields: from flags, variables and a file, by one set of rules."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.base.flags import FILE_FLAG
from gpuscale.base.settings import (
    ITEMS,
    MILLISECONDS,
    NUMBER,
    PATH,
    PATHS,
    SECONDS,
    SWITCH,
    TEXT,
    Panel,
    groups_of,
    made,
    one_of,
    part,
    read,
    reader_of,
)
from gpuscale.base.settings_file import settings_schema

STORE, SERVING = Panel("Store"), Panel("Serving", is_ours=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A part."""

    port: int = SERVING.option(NUMBER, "port", "Port.", "80")
    files: tuple[Path, Path] | None = made(
        lambda flags: flags.pair("cert", "key"),
        SERVING.flag("cert", "Certificate."),
        SERVING.flag("key", "Key."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of a server."""

    series: int = STORE.option(NUMBER.or_default(), "store-max-series", "Series.", "200")
    age_s: float | None = STORE.option(SECONDS.unless_zero(None), "store-age", "Age.", "0s")
    step_ms: int = STORE.option(MILLISECONDS, "step", "Step.", "1s", env="STEP")
    names: tuple[str, ...] = STORE.option(ITEMS, "names", "Names.", "a,b")
    rules: tuple[Path, ...] = STORE.option(PATHS, "rules", "Rules.")
    keeps: bool = STORE.option(SWITCH, "keep", "Keep.", "false")
    title: str = STORE.option(TEXT, "title", "Title.", key="heading")
    mode: str = STORE.option(
        one_of("auto", "on", "off"), "mode", "Mode.", "auto", choices=("auto", "on", "off")
    )
    folder: Path | None = STORE.option(PATH, "folder", "Folder.")
    serving: Serving = part(Serving)
    count: int = 3


GROUPS = groups_of(Settings, more=(STORE.flag(FILE_FLAG, "File."),))
FLAGS = {flag.name: flag for flags in GROUPS.values() for flag in flags}


def settings(environment=None, **given):
    flags = reader_of(FLAGS, given, environment)
    found = read(Settings, flags)
    flags.finish()
    return found


def of_file(folder: Path, text: str, environment=None, **given):
    path = folder / "settings.yaml"
    path.write_text(text)
    return settings(environment, settings=[str(path)], **given)


def test_without_flags_it_is_what_the_defaults_mean() -> None:
    assert settings() == Settings()
    assert Settings() == Settings(
        series=200, age_s=None, step_ms=1000, names=("a", "b"), serving=Serving(port=80)
    )


def test_zero_may_mean_the_default_or_nothing() -> None:
    assert settings(**{"store-max-series": ["0"], "store-age": ["90s"]}).series == 200
    assert settings(**{"store-age": ["90s"]}).age_s == 90.0


def test_flags_are_in_the_panels_of_their_fields_each_with_a_key() -> None:
    assert {title: [flag.key for flag in flags] for title, flags in GROUPS.items()} == {
        "Store": [
            *("store.maxSeries", "store.age", "store.step", "store.names", "store.rules"),
            *("store.keep", "store.heading", "store.mode", "store.folder", "store.settings"),
        ],
        "Serving": ["serving.port", "serving.cert", "serving.key"],
    }
    assert FLAGS["port"].is_ours
    assert not FLAGS["title"].is_ours


def test_a_file_says_the_same_as_flags(tmp_path: Path) -> None:
    text = """
store: {maxSeries: 7, age: 2m, step: 500ms, names: [x, y], rules: [a.yaml, b.yaml], keep: true, heading: 12}
serving: {port: 8080, cert: c.pem, key: k.pem}
"""
    given = {
        "store-max-series": ["7"],
        "store-age": ["2m"],
        "step": ["500ms"],
        "names": ["x,y"],
        "rules": ["a.yaml", "b.yaml"],
        "keep": ["true"],
        "title": ["12"],
        "port": ["8080"],
        "cert": ["c.pem"],
        "key": ["k.pem"],
    }
    assert of_file(tmp_path, text) == settings(**given)


@pytest.mark.parametrize("word", ["auto", "on", "off", '"on"', "true"])
def test_on_and_off_are_words_although_yaml_reads_truth_values(tmp_path: Path, word: str) -> None:
    expected = {"true": "on"}.get(word, word.strip('"'))
    assert of_file(tmp_path, f"store: {{mode: {word}}}").mode == expected
    data = {"store": {"mode": {"on": True, "off": False, "true": True}.get(word, word)}}
    assert Draft202012Validator(settings_schema(FLAGS)).is_valid(data)


def test_a_flag_wins_over_its_variable_and_both_over_the_file(tmp_path: Path) -> None:
    text = "store: {step: 2s}"
    assert of_file(tmp_path, text).step_ms == 2000
    assert of_file(tmp_path, text, {"STEP": "3s"}).step_ms == 3000
    assert of_file(tmp_path, text, {"STEP": "3s"}, step=["4s"]).step_ms == 4000


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "store:\n", "store: {step: null}\nserving: {}"]
)
def test_what_has_no_value_counts_as_absent(tmp_path: Path, text: str) -> None:
    assert of_file(tmp_path, text) == Settings()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("stor: {}", r":1: stor: found stor, expected store"),
        ("store:\n  maxserie: 5", r":2: store.maxserie: found maxserie, expected maxSeries"),
        ("store: 5", r":1: store: found 5, expected a mapping"),
        ("store: {step: {a: 1}}", r":1: store.step: found a mapping, expected a value"),
        ("store: {step: [1s]}", r":1: store.step: found a list, expected one value"),
        ("store: {maxSeries: true}", r":1: store.maxSeries: found true, expected a whole number"),
        ("store: {rules: [a, {b: 1}]}", r":1: store.rules\[1\]: found a mapping, expected a value"),
        ("store: {settings: a}", r":1: store.settings: found settings, expected"),
        ("- a", r"found a list, expected a mapping"),
        ("a: 1\n---\nb: 1", r"found 2 documents, expected one"),
        ("a: [", r"settings.yaml"),
    ],
)
def test_what_is_not_of_the_format_is_said_with_its_line(
    tmp_path: Path, text: str, fault: str
) -> None:
    with pytest.raises(ConfigError, match=fault):
        of_file(tmp_path, text)


def test_a_value_that_cant_be_is_said_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        of_file(tmp_path, "serving:\n  port: many\nstore:\n  step: soon", keep=["maybe"])
    assert str(caught.value).splitlines() == [
        f"{tmp_path}/settings.yaml:4: store.step: found 'soon', expected a duration such as 30s or 10m",
        "--keep: found 'maybe', expected true or false",
        f"{tmp_path}/settings.yaml:2: serving.port: found 'many', expected a whole number",
    ]


def test_a_file_that_cant_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file"):
        settings(settings=[str(tmp_path / "none.yaml")])
    (tmp_path / "latin1.yaml").write_bytes(b"store: {heading: \xe4}")
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 0xe4 at offset 17\)"):
        settings(settings=[str(tmp_path / "latin1.yaml")])
    (tmp_path / "large.yaml").write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="found a larger file, expected at most 1 MiB"):
        settings(settings=[str(tmp_path / "large.yaml")])


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        ({"store": {"maxSeries": 5, "step": "5s", "rules": ["a"], "keep": False}}, True),
        ({"store": None, "serving": {"port": None}}, True),
        ({"store": {"maxSeries": "5"}}, False),
        ({"store": {"step": "soon"}}, False),
        ({"store": {"unknown": 1}}, False),
        ({"unknown": {}}, False),
    ],
)
def test_the_schema_takes_what_the_file_may_have(data, fits: bool) -> None:
    assert Draft202012Validator(settings_schema(FLAGS)).is_valid(data) is fits


def test_of_a_file_without_an_end_no_more_is_read_than_may_be() -> None:
    with pytest.raises(ConfigError, match="found a larger file, expected at most 1 MiB"):
        settings(settings=["/dev/zero"])
