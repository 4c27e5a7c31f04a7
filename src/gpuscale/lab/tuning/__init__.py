"""Searches for settings of HPAs and node pools, for `gpuscale tune` and `gpuscale.tune`."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.lab.plan.promise import Promise
    from gpuscale.lab.tuning.answers import TuningRequest
    from gpuscale.lab.tuning.asking import answer
    from gpuscale.lab.tuning.autoscaler import TunedHpa, default_change
    from gpuscale.lab.tuning.changing import changes
    from gpuscale.lab.tuning.fleets import FleetResult, answer_together, fleet_text, of_fleet
    from gpuscale.lab.tuning.inputs import (
        Manifest,
        Overrides,
        manifest_of,
        of_demand,
        of_setup,
        policy_names,
    )
    from gpuscale.lab.tuning.limits import (
        HELD_BACK_PERCENT,
        LIMITS,
        PROMISE,
        SEED,
        TRIES,
        is_within,
    )
    from gpuscale.lab.tuning.saving import (
        WorkloadSaving,
        read_advice,
        saving_of,
        savings_document,
        savings_lines,
    )
    from gpuscale.lab.tuning.shown import text_of
else:
    __getattr__ = door(__name__)

__all__ = [
    "HELD_BACK_PERCENT",
    "LIMITS",
    "PROMISE",
    "SEED",
    "TRIES",
    "FleetResult",
    "Manifest",
    "Overrides",
    "Promise",
    "TunedHpa",
    "TuningRequest",
    "WorkloadSaving",
    "answer",
    "answer_together",
    "changes",
    "default_change",
    "fleet_text",
    "is_within",
    "manifest_of",
    "of_demand",
    "of_fleet",
    "of_setup",
    "policy_names",
    "read_advice",
    "saving_of",
    "savings_document",
    "savings_lines",
    "text_of",
]
