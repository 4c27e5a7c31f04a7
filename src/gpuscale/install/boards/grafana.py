"""Dashboards as Grafana's JSON, for releases 10 and later: to be imported, or loaded by its sidecar.

Source: grafana kinds/dashboard (dashboard_kind.cue) and the panels' own schemas at 10.4. Grafana fills in
what is missing, and migrates what `schemaVersion` says is old.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from gpuscale.install.boards.model import (
    WIDTH,
    Board,
    LabelVariable,
    Panel,
    Query,
    Row,
    TextVariable,
    Threshold,
    Variable,
)

SCHEMA_VERSION = 38
"""Of Grafana 10.0; later releases migrate from it."""
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_ALL = ".*"
_TAGS = ["gpu", "gpuscale"]
_HIDE_VARIABLE = 2
_LEGEND_WIDTH, _AXIS_WIDTH = 400, 70
"""Pixels. Of panels below each other, so that the same time is at the same place in all of them."""
_VALUE_COLUMN = "Value"
"""Of a table with one query; its other columns are labels."""

Json = dict[str, Any]


def board_text(board: Board) -> str:
    """Return a dashboard as the text of a file."""
    return json.dumps(board_json(board), indent=1, ensure_ascii=False) + "\n"


def board_json(board: Board) -> Json:
    """Return a dashboard as Grafana's model of it."""
    return {
        "id": None,
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "tags": _TAGS,
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        # One cursor over all panels: cause and effect are read off at the same moment.
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [_links()],
        "templating": {"list": [_datasource(), *map(_variable, board.variables)]},
        "panels": list(_panels(board.rows)),
    }


def _links() -> Json:
    return {
        "title": "gpuscale",
        "type": "dashboards",
        "icon": "external link",
        "tooltip": "",
        "url": "",
        "tags": ["gpuscale"],
        "asDropdown": True,
        "targetBlank": False,
        "includeVars": False,
        "keepTime": True,
    }


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "regex": "",
        "refresh": 1,
        "hide": 0,
        "includeAll": False,
        "multi": False,
    }


def _variable(variable: Variable) -> Json:
    if isinstance(variable, TextVariable):
        chosen = {"text": variable.value, "value": variable.value, "selected": True}
        return {
            "name": variable.name,
            "label": variable.title,
            "type": "textbox",
            "query": variable.value,
            "current": chosen,
            "options": [chosen],
            "hide": 0,
        }
    return _label_variable(variable)


def _label_variable(variable: LabelVariable) -> Json:
    query = f"label_values({variable.metric}, {variable.label})"
    chosen: Json = {"text": ["All"], "value": ["$__all"], "selected": True}
    return {
        "name": variable.name,
        "label": variable.title,
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{variable.name}"},
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "hide": _HIDE_VARIABLE if variable.is_hidden else 0,
        "multi": variable.has_all,
        "includeAll": variable.has_all,
        **({"allValue": _ALL, "current": chosen} if variable.has_all else {"current": {}}),
    }


def _panels(rows: Sequence[Row]) -> Iterator[Json]:
    """Yield headings and panels, from left to right and from top to bottom."""
    number, top = 1, 0
    for row in rows:
        yield _heading(row, number, top)
        number, top = number + 1, top + 1
        left, height = 0, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                left, top, height = 0, top + height, 0
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": panel.height})
            number, left, height = number + 1, left + panel.width, max(height, panel.height)
        top += height


def _heading(row: Row, number: int, top: int) -> Json:
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
        "panels": [],
    }


def _panel(panel: Panel, number: int, place: Json) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "targets": [_target(panel, query, index) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
        **_transformations(panel),
    }


def _reference(index: int) -> str:
    return chr(ord("A") + index)


def _target(panel: Panel, query: Query, index: int) -> Json:
    return {
        "refId": _reference(index),
        "datasource": _DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": panel.is_instant,
        "range": not panel.is_instant,
        "format": "table" if panel.kind == "table" else "time_series",
    }


def _defaults(panel: Panel) -> Json:
    """Return what holds for all fields; of a table nothing, because most of its fields are labels."""
    if panel.kind == "table":
        return {}
    return {**_of_values(panel), "custom": _custom(panel)}


def _of_values(panel: Panel) -> Json:
    found: Json = {
        "unit": panel.unit,
        "color": {"mode": "thresholds" if panel.thresholds else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": _steps(panel.thresholds)},
        "mappings": [_words(panel)] if panel.words else [],
    }
    if panel.at_least is not None:
        found["min"] = panel.at_least
    if panel.at_most is not None:
        found["max"] = panel.at_most
    return found


def _steps(thresholds: Sequence[Threshold]) -> list[Json]:
    first: Json = {"color": "green", "value": None}
    return [first, *({"color": each.color, "value": each.value} for each in thresholds)]


def _words(panel: Panel) -> Json:
    texts = {
        each.value: {"text": each.text, "color": each.color, "index": at}
        for at, each in enumerate(panel.words)
    }
    return {"type": "value", "options": texts}


def _custom(panel: Panel) -> Json:
    if panel.kind != "timeseries":
        return {}
    return {
        "drawStyle": "line",
        "lineInterpolation": "stepAfter" if panel.has_steps else "linear",
        "lineWidth": 1,
        "fillOpacity": 20 if panel.is_stacked else 0,
        "showPoints": "never",
        # A gap is a value that was not there; a line over it would hide that.
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
        **({"axisWidth": _AXIS_WIDTH} if panel.width == WIDTH else {}),
    }


def _overrides(panel: Panel) -> list[Json]:
    if panel.kind == "table":
        return [_value_column(panel)]
    return [
        {
            "matcher": {"id": "byFrameRefID", "options": _reference(index)},
            "properties": [
                {"id": "unit", "value": query.axis_unit},
                {"id": "custom.axisPlacement", "value": "right"},
            ],
        }
        for index, query in enumerate(panel.queries)
        if query.axis_unit
    ]


def _value_column(panel: Panel) -> Json:
    """Return how a table's values look; with thresholds, their text has the colour of the threshold."""
    found = [{"id": name, "value": value} for name, value in _of_values(panel).items()]
    if panel.thresholds:
        found.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
    return {"matcher": {"id": "byName", "options": _VALUE_COLUMN}, "properties": found}


def _legend(panel: Panel) -> Json:
    found: Json = {
        "displayMode": "table",
        "placement": "right",
        "showLegend": True,
        "calcs": ["lastNotNull"],
    }
    if panel.width == WIDTH:
        has_right_axis = any(query.axis_unit for query in panel.queries)
        found["width"] = _LEGEND_WIDTH - (_AXIS_WIDTH if has_right_axis else 0)
    return found


def _options(panel: Panel) -> Json:
    latest = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    match panel.kind:
        case "timeseries":
            return {"legend": _legend(panel), "tooltip": {"mode": "multi", "sort": "desc"}}
        case "state-timeline":
            return {"mergeValues": True, "showValue": "auto", "legend": {"showLegend": True}}
        case "table":
            return {"showHeader": True, "sortBy": []}
        case "gauge":
            return {"reduceOptions": latest, "showThresholdMarkers": True}
        case "stat":
            return {"reduceOptions": latest, "graphMode": "none", "colorMode": "value"}


def _transformations(panel: Panel) -> Json:
    if panel.kind != "table":
        return {}
    hidden = {"excludeByName": {"Time": True}}
    return {
        "transformations": [{"id": "merge", "options": {}}, {"id": "organize", "options": hidden}]
    }
