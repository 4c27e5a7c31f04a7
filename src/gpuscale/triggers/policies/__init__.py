"""Policies: from the observation at each step to the wanted replicas."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.triggers.policies.behavior import behavior_settings
    from gpuscale.triggers.policies.compiled import policy_function, policy_signature, replay
    from gpuscale.triggers.policies.hpa import (
        FIRST_POLICY,
        HPA,
        HPA_ON_DEMAND,
        MAX_POLICIES,
        UP_TOLERANCE,
        UP_WINDOW,
        pod_totals,
        ready_before,
    )
    from gpuscale.triggers.policies.naming import find_policy, policy_faults
    from gpuscale.triggers.policies.policy import Desired, Numbers, Parameter, Policy, Seen
    from gpuscale.triggers.policies.registry import POLICIES
    from gpuscale.triggers.policies.replaying import Replayed, ReplaySettings, work_of_step
    from gpuscale.triggers.policies.requests import OF_REQUESTS
    from gpuscale.triggers.policies.served import NextQuery, PolicyRun, run_bytes
    from gpuscale.triggers.policies.static import STATIC
else:
    __getattr__ = door(__name__)

__all__ = [
    "FIRST_POLICY",
    "HPA",
    "HPA_ON_DEMAND",
    "MAX_POLICIES",
    "OF_REQUESTS",
    "POLICIES",
    "STATIC",
    "UP_TOLERANCE",
    "UP_WINDOW",
    "Desired",
    "NextQuery",
    "Numbers",
    "Parameter",
    "Policy",
    "PolicyRun",
    "ReplaySettings",
    "Replayed",
    "Seen",
    "behavior_settings",
    "find_policy",
    "pod_totals",
    "policy_faults",
    "policy_function",
    "policy_signature",
    "ready_before",
    "replay",
    "run_bytes",
    "work_of_step",
]
