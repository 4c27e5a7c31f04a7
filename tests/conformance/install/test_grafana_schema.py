"""Dashboards by Grafana's own schema: nothing that it does not know, and each value of the type it wants.

The models are those of Grafana's foundation SDK, made from the schemas of release 10.1, its oldest.
They read leniently: what is unknown is dropped, and no value is checked; so both is done here.
"""

import copy
import enum
import json
import types
import typing

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard, DataTransformerConfig

from gpuscale.ops.install.rendering import board_files
from gpuscale.ops.install.values import Values, ValuesSpec

register_default_plugins()
BOARDS = [json.loads(each) for each in board_files(Values(spec=ValuesSpec())).values()]
NOT_IN_THE_SCHEMA = {
    "id",  # null, as in every dashboard that is to be imported
    "templating.list[].definition",  # of Grafana's list of variables; in the schema from version 2 on
}

every_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])


def lost(written, read_back, where=""):
    """Yield where something of what was written was not read, or read as something else."""
    if isinstance(written, dict) and isinstance(read_back, dict):
        for key, value in written.items():
            inside = f"{where}.{key}" if where else key
            if key not in read_back:
                yield inside
            else:
                yield from lost(value, read_back[key], inside)
    elif isinstance(written, list) and isinstance(read_back, list):
        for value, other in zip(written, read_back, strict=True):
            yield from lost(value, other, f"{where}[]")
    elif written != read_back:
        yield where


def unfit(value, wanted, where):
    """Yield where a value read is not of the type that its model wants."""
    kind, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted in (typing.Any, object):
        yield from unfit_fields(value, where) if hasattr(value, "to_json") else ()
    elif kind in (typing.Union, types.UnionType):
        tried = [list(unfit(value, part, where)) for part in parts]
        yield from [] if not all(tried) else max(tried, key=lambda found: max(map(len, found)))
    elif kind is typing.Literal:
        yield from [] if value in parts else [where]
    elif kind in (list, dict):
        if not isinstance(value, kind):
            yield where
            return
        for each in value.values() if kind is dict else value:
            yield from unfit(each, parts[-1], f"{where}[]")
    elif isinstance(value, dict) and wanted is DataTransformerConfig:
        # The SDK leaves transformations as they are written.
        yield from unfit_fields(DataTransformerConfig.from_json(value), where)
    elif issubclass(wanted, enum.Enum):
        yield from [] if value in {member.value for member in wanted} else [where]
    elif wanted in (bool, int, float, str, types.NoneType):
        yield from [] if is_plain(value, wanted) else [where]
    elif not isinstance(value, wanted):
        yield where
    else:
        yield from unfit_fields(value, where)


def is_plain(value, wanted):
    if isinstance(value, bool):
        return wanted is bool
    return isinstance(value, (int, float) if wanted is float else wanted)


def unfit_fields(model, where):
    wanted = typing.get_type_hints(type(model))
    for name, value in vars(model).items():
        yield from unfit(value, wanted[name], f"{where}.{name}" if where else name)


def complaints(board):
    model = Dashboard.from_json(copy.deepcopy(board))
    read_back = json.loads(json.dumps(model, cls=JSONEncoder))
    return {*lost(board, read_back), *unfit_fields(model, "")}


@every_board
def test_grafana_knows_every_field_and_takes_every_value(board) -> None:
    assert complaints(board) <= NOT_IN_THE_SCHEMA


def time_series(board):
    return next(panel for panel in board["panels"] if panel["type"] == "timeseries")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(lambda board: board.update(style="grey"), "style", id="value of a choice"),
        pytest.param(lambda board: board.update(tags="gpu"), "tags", id="type"),
        pytest.param(lambda board: board.update(graphTooltip=3), "graph_tooltip", id="number"),
        pytest.param(
            lambda board: time_series(board).update(titel="x"), "panels[].titel", id="panel"
        ),
        pytest.param(
            lambda board: time_series(board)["options"]["legend"].update(placement="top"),
            "panels[].options.legend.placement",
            id="option",
        ),
        pytest.param(
            lambda board: time_series(board)["fieldConfig"]["defaults"]["custom"].update(line=1),
            "panels[].fieldConfig.defaults.custom.line",
            id="field",
        ),
        pytest.param(
            lambda board: time_series(board)["targets"][0].update(format="csv"),
            "panels[].targets[].format_val",
            id="query",
        ),
    ],
)
def test_what_grafana_does_not_know_is_found(change, told: str) -> None:
    board = copy.deepcopy(BOARDS[0])
    change(board)
    assert complaints(board) - NOT_IN_THE_SCHEMA == {told}
