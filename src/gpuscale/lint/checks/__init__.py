"""Every judge of files, with its checks beside it."""

from gpuscale.core.findings import checks_by_id
from gpuscale.lint.checks import files, hpas, pairs, rules, scaled_objects

JUDGES = (files.JUDGE, rules.JUDGE, hpas.JUDGE, scaled_objects.JUDGE, pairs.JUDGE)
CHECKS = checks_by_id(JUDGES)
"""Every check by its id, in the order in which the docs list them."""
