# mypy: disable-error-code="assignment"
"""Whatever a counters file holds, it loads or is refused with its own error."""

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.errors import ConfigError
from gpuscale.signals import FIELDS, load_counters
from gpuscale.signals.known_fields import is_known

NUMBERS = sorted(name for name, field in FIELDS.items() if field.kind != "string")
PIECES = st.sampled_from(
    [
        *NUMBERS[:5],
        "DCGM_FI_DRIVER_VERSION",
        "gauge",
        "label",
        ",",
        '"',
        "#",
        "\n",
        "\r",
        " ",
        "\t",
        "\x00",
    ]
)
NEAR_FILES = st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=60).map("".join)
HELPS = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters=' "'), max_size=30
)


@given(st.one_of(st.text(max_size=2000), NEAR_FILES))
def test_any_text_loads_or_is_refused(text) -> None:
    rows = ()
    problems = ()
    try:
        rows = load_counters(text, "my.csv")
    except ConfigError as error:
        problems = error.problems
    assert not (rows and problems)
    assert all(is_known(row.field) for row in rows)


@given(
    st.lists(
        st.tuples(st.sampled_from(NUMBERS), st.sampled_from(["gauge", "counter", "label"]), HELPS),
        min_size=1,
        max_size=20,
        unique_by=lambda row: row[0],
    )
)
def test_well_formed_rows_come_back_as_written(rows) -> None:
    text = "\n".join(f'{field}, {type_}, "{help_}"' for field, type_, help_ in rows)
    loaded = load_counters(text, "my.csv")
    assert [(row.field, row.type, row.help) for row in loaded] == rows
