"""A workload's recorded history on a real cluster, as a scenario that anyone can run."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.lab.sim.history.comparison import compared, text
    from gpuscale.lab.sim.history.demand import Demand, demand_of
    from gpuscale.lab.sim.history.hpa_changes import hpa_history
    from gpuscale.lab.sim.history.questions import DeploymentQueries, facts_of, manifests_of
    from gpuscale.lab.sim.history.recording import (
        FACT_COLUMNS,
        NAMES,
        Recording,
        RecordingFacts,
        from_answers,
        is_of_hpa,
        trimmed,
    )
    from gpuscale.lab.sim.history.tables import MAX_STEPS, Line, read_recording, recording_of
    from gpuscale.lab.sim.history.writing import SCENARIO, files, objects_of
else:
    __getattr__ = door(__name__)

__all__ = [
    "FACT_COLUMNS",
    "MAX_STEPS",
    "NAMES",
    "SCENARIO",
    "Demand",
    "DeploymentQueries",
    "Line",
    "Recording",
    "RecordingFacts",
    "compared",
    "demand_of",
    "facts_of",
    "files",
    "from_answers",
    "hpa_history",
    "is_of_hpa",
    "manifests_of",
    "objects_of",
    "read_recording",
    "recording_of",
    "text",
    "trimmed",
]
