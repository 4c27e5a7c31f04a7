"""All dashboards of an installation, as files and as the ConfigMaps that Grafana's sidecar loads."""

from gpuscale.install.boards.autoscaling import autoscaling_board
from gpuscale.install.boards.cost import cost_board
from gpuscale.install.boards.gpus import gpu_board
from gpuscale.install.boards.grafana import board_text
from gpuscale.install.boards.model import Board, BoardSettings, board_settings
from gpuscale.install.common import Object, metadata, part_name
from gpuscale.install.values import Values

PART = "dashboards"


def boards(settings: BoardSettings) -> tuple[Board, ...]:
    """Return all dashboards."""
    return gpu_board(settings), autoscaling_board(settings), cost_board(settings)


def board_files(values: Values) -> dict[str, str]:
    """Return the dashboards' JSON by the names of files; nothing where they are off."""
    if not values.spec.dashboards.enabled:
        return {}
    return {f"{each.uid}.json": board_text(each) for each in boards(board_settings(values))}


def dashboard_objects(values: Values) -> list[Object]:
    """Return a ConfigMap per dashboard; none where they are off."""
    return [_config_map(values, name, text) for name, text in board_files(values).items()]


def _config_map(values: Values, file: str, text: str) -> Object:
    dashboards = values.spec.dashboards
    board = file.removeprefix("gpuscale-").removesuffix(".json")
    name = part_name(values, f"dashboard-{board}")
    found = metadata(values, PART, name=name, namespace=dashboards.namespace)
    found["labels"] = {**found["labels"], dashboards.label: "1"}
    found["annotations"] = {"grafana_folder": dashboards.folder}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": found, "data": {file: text}}
