"""Fields of a scenario set from the command line."""

import pytest

from gpuscale.base.documents.changes import with_values
from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.lab.scenarios import find_setup

TEXT = "a: {b: [1, {c: 2}]}\nd: text\n"


def changed(*settings):
    return with_values(load_documents(TEXT, "f.yaml")[0], settings, "--set").data


def test_values_are_yaml_and_the_rest_stays():
    assert changed("a.b[1].c=[x, 1]", "d=5m") == {"a": {"b": [1, {"c": ["x", 1]}]}, "d": "5m"}
    assert changed("e.f.g=true") == {
        "a": {"b": [1, {"c": 2}]},
        "d": "text",
        "e": {"f": {"g": True}},
    }
    assert changed("d=") == {"a": {"b": [1, {"c": 2}]}, "d": None}
    assert changed("d=1", "d=a=b")["d"] == "a=b"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("a.b", "PATH=VALUE"),
        ("=1", "PATH=VALUE"),
        ("a..b=1", "PATH=VALUE"),
        ("a.b[7].c=1", "2 items in a.b"),
        ("d[0]=1", "no list in d"),
        ("d.e=1", "no fields in d"),
        ("d=" + "x" * 70_000, "more than 65536 bytes"),
        ("d=1\n---\n2", "2 YAML documents"),
    ],
)
def test_a_path_or_value_that_makes_no_sense_is_refused(setting, expected):
    with pytest.raises(UsageError) as caught:
        changed(setting)
    assert expected in str(caught.value)


def test_a_value_that_is_no_yaml_is_refused():
    with pytest.raises(ConfigError):
        changed("d={")


def test_a_scenario_is_checked_after_it_was_changed():
    setup = find_setup("ack-bert", ["spec.duration=10m", "spec.nodePools[0].max=3"])
    assert (setup.duration_ms, setup.pools[0].pool.max_nodes) == (600_000, 3)
    with pytest.raises(ConfigError) as caught:
        find_setup("ack-bert", ["spec.duration=soon", "spec.colour=red"])
    assert "spec.duration: found 'soon'" in str(caught.value)
    assert "spec.colour" in str(caught.value)
