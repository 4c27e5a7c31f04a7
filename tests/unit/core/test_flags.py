"""Flags of a table: what texts mean, and that all faults are reported together."""

import pytest

from gpuscale.base.errors import UsageError
from gpuscale.base.flags import Flag, FlagReader

TABLE = {
    flag.name: flag
    for flag in (
        Flag("name", "", default="x", env="NAME"),
        Flag("on", "", "bool", "false", env="ON"),
        Flag("port", "", "int", "6443"),
        Flag("wait", "", "duration", "30s"),
        Flag("mode", "", "choice", "replace", choices=("replace", "add")),
        Flag("hosts", "", "list", repeats=True),
        Flag("cert", ""),
        Flag("key", ""),
        Flag("old", "", "bool", "false", no_effect="it is gone"),
    )
}


def reader(environment=None, **given):
    texts = {name: each if isinstance(each, list) else [each] for name, each in given.items()}
    return FlagReader(TABLE, texts, environment)


def test_defaults() -> None:
    flags = reader()
    assert (flags.text("name"), flags.boolean("on"), flags.port("port")) == ("x", False, 6443)
    assert (flags.seconds("wait"), flags.choice("mode"), flags.items("hosts")) == (
        30,
        "replace",
        (),
    )
    assert (flags.path("cert"), flags.pair("cert", "key"), flags.notes()) == (None, None, ())
    flags.finish()


def test_a_flag_wins_over_its_variable() -> None:
    assert reader({"NAME": "variable"}).text("name") == "variable"
    assert reader({"NAME": "variable"}, name="flag").text("name") == "flag"


def test_items_of_all_texts_are_joined() -> None:
    assert reader(hosts=["a, b", "c,"]).items("hosts") == ("a", "b", "c")


def test_all_faults_are_reported_in_the_order_of_reading_and_each_once() -> None:
    flags = reader({"ON": "maybe"}, port="70000", wait="soon", mode="both", cert="a.pem")
    assert flags.boolean("on") is False
    assert (flags.port("port"), flags.port("port"), flags.number("port")) == (6443, 6443, 70000)
    assert (flags.seconds("wait"), flags.choice("mode"), flags.pair("cert", "key")) == (
        30,
        "replace",
        None,
    )
    with pytest.raises(UsageError) as caught:
        flags.finish()
    assert str(caught.value).splitlines() == [
        "ON: found 'maybe', expected true or false",
        "--port: found '70000', expected a port from 0 to 65535",
        "--wait: found 'soon', expected a duration such as 30s or 10m",
        "--mode: found 'both', expected one of: replace, add",
        "--cert: found it alone, expected --key beside it",
    ]


def test_notes_leave_out_what_is_switched_off_where_that_is_asked() -> None:
    assert reader(old="false").notes() == ("--old changes nothing: it is gone",)
    assert reader(old="false").notes(skips_off=True) == ()
