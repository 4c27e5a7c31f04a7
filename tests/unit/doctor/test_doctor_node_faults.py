"""Why no node comes: each fault is named at once, with what is right about it and nothing wrong beside it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from clusters import both, cluster, roots_of
from cures import cured
from fault_cases import FAULTS
from reported_cases import REPORTED
from workload_cases import at

ALL = [*FAULTS.values(), *REPORTED]
AGES = pytest.mark.parametrize("later_s", [0, 17 * 60], ids=["at-once", "after-17-minutes"])


def later(objects, later_s):
    """The same objects when their pods have waited for longer."""
    found = dict(objects)
    found["pods"] = [
        {**each, "metadata": {**each["metadata"], "creationTimestamp": at(60 + later_s)}}
        if not each["spec"].get("nodeName") and later_s
        else each
        for each in found.get("pods", both("pods"))
    ]
    return found


def words(finding):
    return "; ".join(
        (finding.where, finding.what, finding.evidence, finding.fix.say, finding.fix.command)
    )


@AGES
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.source)
def test_a_fault_is_named_with_what_is_right_about_it(case, later_s):
    roots = roots_of(cluster(**later(case.objects, later_s)))
    assert roots.keys() - {case.check, *case.beside} == set()
    if case.check:
        text = words(roots[case.check])
        assert not [each for each in case.says if each not in text], text


@pytest.mark.parametrize(
    "case", [case for case in ALL if case.is_curable], ids=lambda case: case.source
)
def test_the_printed_command_ends_the_fault(case):
    command = roots_of(cluster(**case.objects))[case.check].fix.command
    assert case.check not in roots_of(cluster(**cured(case.objects, command)))
