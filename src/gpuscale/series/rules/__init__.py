"""Recording and alerting rules over the store, as Prometheus evaluates them.

`load` reads rule files into groups (`groups`), whose rules are `recording` or `alerting` ones. A group asks
its queries one after the other and leaves evaluating them to its caller, so that the same rules run in
virtual time and beside an event loop. `restore` gives alerts back the time that they were pending before a
restart, `templates` fills in labels and annotations.
"""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.series.rules.alerting import Alert, AlertingRule
    from gpuscale.series.rules.groups import RuleGroup, RuleGroups, joined
    from gpuscale.series.rules.load import load_rule_groups
    from gpuscale.series.rules.restoring import restore
    from gpuscale.series.rules.rule import RuleFailure, RuleQuestion, RuleResult
    from gpuscale.series.rules.templates import table_link
else:
    __getattr__ = door(__name__)

__all__ = [
    "Alert",
    "AlertingRule",
    "RuleFailure",
    "RuleGroup",
    "RuleGroups",
    "RuleQuestion",
    "RuleResult",
    "joined",
    "load_rule_groups",
    "restore",
    "table_link",
]
