"""Will a node come for a pod that waits, which pool makes it, and why not."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.cluster.verdicts.cards import (
        ALLOCATED,
        REGISTERED,
        Card,
        cards_lacking,
        cards_of,
    )
    from gpuscale.hpa.cluster.verdicts.clouds import DenialKind, denial_in
    from gpuscale.hpa.cluster.verdicts.reasons import Reason, Why
    from gpuscale.hpa.cluster.verdicts.sayings import (
        cluster_autoscalers_reasons,
        karpenters_reasons,
    )
    from gpuscale.hpa.cluster.verdicts.verdict import (
        ComingNode,
        Offered,
        Outlook,
        PoolFacts,
        PoolLabels,
        Verdict,
        judge,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "ALLOCATED",
    "REGISTERED",
    "Card",
    "ComingNode",
    "DenialKind",
    "Offered",
    "Outlook",
    "PoolFacts",
    "PoolLabels",
    "Reason",
    "Verdict",
    "Why",
    "cards_lacking",
    "cards_of",
    "cluster_autoscalers_reasons",
    "denial_in",
    "judge",
    "karpenters_reasons",
]
