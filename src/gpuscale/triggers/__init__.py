"""Triggers: what KEDA and the HPA scale a workload on, also at zero. Pure; time is an argument."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.triggers.answer import Answer, Basis, KeptAnswers, TooManyTriggersError
    from gpuscale.triggers.credit import DEFAULT_DRAIN_S
    from gpuscale.triggers.held import HeldTrigger, Key, decode, encode, held_of, newest
    from gpuscale.triggers.machine import TriggerDecision, TriggerOutcome, TriggerState, evaluate
    from gpuscale.triggers.metadata import is_trigger_file, read_metadata, read_triggers
    from gpuscale.triggers.observation import (
        FlowSeen,
        Missing,
        Observation,
        PodLoads,
        PodsSeen,
        TotalLoad,
        WakeSeen,
        flow_seen,
    )
    from gpuscale.triggers.presets import PRESETS
    from gpuscale.triggers.schedule import awake
    from gpuscale.triggers.startup import kept_starts, learned_deadline_s
    from gpuscale.triggers.trigger import ServedPolicy, Trigger, WakeQuery, WorkloadRef
else:
    __getattr__ = door(__name__)

__all__ = [
    "DEFAULT_DRAIN_S",
    "PRESETS",
    "Answer",
    "Basis",
    "FlowSeen",
    "HeldTrigger",
    "KeptAnswers",
    "Key",
    "Missing",
    "Observation",
    "PodLoads",
    "PodsSeen",
    "ServedPolicy",
    "TooManyTriggersError",
    "TotalLoad",
    "Trigger",
    "TriggerDecision",
    "TriggerOutcome",
    "TriggerState",
    "WakeQuery",
    "WakeSeen",
    "WorkloadRef",
    "awake",
    "decode",
    "encode",
    "evaluate",
    "flow_seen",
    "held_of",
    "is_trigger_file",
    "kept_starts",
    "learned_deadline_s",
    "newest",
    "read_metadata",
    "read_triggers",
]
