"""A workload's recorded history on a real cluster, as a scenario that anyone can run."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.lab.sim.history.comparison import compared, replicas_of, text
    from gpuscale.lab.sim.history.demand import Demand, demand_of
    from gpuscale.lab.sim.history.hpa_changes import hpa_history
    from gpuscale.lab.sim.history.ledger import Advice, Ledger, Replays, ledger_of
    from gpuscale.lab.sim.history.ledger_shown import (
        ledger_document,
        ledger_lines,
    )
    from gpuscale.lab.sim.history.questions import DeploymentQueries, facts_of, manifests_of
    from gpuscale.lab.sim.history.recording import (
        FACT_COLUMNS,
        NAMES,
        Column,
        Recording,
        RecordingFacts,
        columns_of,
        from_answers,
        is_of_hpa,
        trimmed,
    )
    from gpuscale.lab.sim.history.tables import MAX_STEPS, Line, read_recording, recording_of
    from gpuscale.lab.sim.history.writing import SCENARIO, files, objects_of, plain_rules
else:
    __getattr__ = door(__name__)

__all__ = [
    "FACT_COLUMNS",
    "MAX_STEPS",
    "NAMES",
    "SCENARIO",
    "Advice",
    "Column",
    "Demand",
    "DeploymentQueries",
    "Ledger",
    "Line",
    "Recording",
    "RecordingFacts",
    "Replays",
    "columns_of",
    "compared",
    "demand_of",
    "facts_of",
    "files",
    "from_answers",
    "hpa_history",
    "is_of_hpa",
    "ledger_document",
    "ledger_lines",
    "ledger_of",
    "manifests_of",
    "objects_of",
    "plain_rules",
    "read_recording",
    "recording_of",
    "replicas_of",
    "text",
    "trimmed",
]
