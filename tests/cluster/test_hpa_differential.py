"""20 000 situations through the HPA controllers of Kubernetes, compiled, and through `decide`: no difference.

`decide` has its arithmetic from the kernel as Python runs it, and again as numba compiles it.

The programs `hpa-differential` are upstream's controller, defaulting, conversion, validation and metrics
clients with a clock that the test sets, of the release of the control plane and of the one before it, which
has a quarter of the situations: arithmetic has not changed between them. What is left out of the comparison
stands in `hpa_differential.comparable`, the cases in `hpa_cases`. $GPUSCALE_DIFFERENTIAL_CASES asks for
another number of cases, $GPUSCALE_DIFFERENTIAL_SEED for others.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.hpa import decide
from gpuscale.hpa.kernel.compiled import compiled_kernel

sys.path.insert(0, str(Path(__file__).parent))
from hpa_cases import Cases
from hpa_differential import answers, comparable, hpa_of, shaped
from hpa_manifests import mutations

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("differential")]

RELEASES = [("hpa-differential", 37, 0.75), ("hpa-differential-1.36", 36, 0.25)]
"""Program, N of Kubernetes 1.N, and share of the cases."""
CASES = int(os.environ.get("GPUSCALE_DIFFERENTIAL_CASES", "20000"))
SEED = int(os.environ.get("GPUSCALE_DIFFERENTIAL_SEED", "0"))
REALISTIC, ABSURD = 2**53, 2**63 - 1
"""The largest value of a metric: sums of the first stay within int64, those of the second wrap around."""
_TIMEOUT_S = 400


class Controller:
    """The compiled controller: a case in, its answer out."""

    def __init__(self, program: Path, minor: int, share: float) -> None:
        self.minor = minor
        self.cases = round(CASES * share)
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, case: dict) -> dict:
        self._process.stdin.write(json.dumps(case).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "broken" not in answer, (answer, case)
        return answer

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module", params=RELEASES, ids=["1.37", "1.36"])
def controller(request, built) -> Iterator[Controller]:
    program, minor, share = request.param
    running = Controller(built(program), minor, share)
    yield running
    running.close()


@pytest.fixture(scope="module")
def decided() -> Callable:
    """`decide` with the interpreted kernel, once the compiled one has given the same."""
    compiled = compiled_kernel(print)

    def decide_twice(*situation, **more):
        decision = decide(*situation, **more)
        assert decide(*situation, **more, kernel=compiled) == decision
        return decision

    return decide_twice


def differences(case: dict, theirs: list[dict], ours: list[dict]) -> list[str]:
    """Return what the first sync with a difference has of it, and the case."""
    for number, sync in enumerate(case["syncs"]):
        expected, found = comparable(shaped(theirs[number]), sync), comparable(ours[number], sync)
        if found != expected:
            told = {
                key: (expected[key], found[key]) for key in found if found[key] != expected[key]
            }
            return [f"sync {number}, (controller, decide): {told}\n{json.dumps(case)}"]
    return []


@pytest.mark.timeout(_TIMEOUT_S)
@pytest.mark.parametrize(("seed", "share", "most"), [(0, 0.8, REALISTIC), (1, 0.2, ABSURD)])
def test_decide_does_what_the_controller_does(
    controller, decided, seed: int, share: float, most: int
) -> None:
    # Each release has cases of its own.
    cases = Cases(100 * controller.minor + 2 * SEED + seed, most)
    found = []
    for _ in range(int(controller.cases * share)):
        case = cases.case()
        theirs, ours = controller.ask(case)["syncs"], answers(case, decided, controller.minor)
        found += differences(case, theirs, ours)
        assert len(found) < 5, "\n\n".join(found)
    assert found == []


def test_cases_reach_what_they_are_meant_to_reach(controller) -> None:
    """A generator that only makes quiet cases would prove nothing."""
    reasons, counts, proposals = set(), set(), set()
    cases = Cases(9)
    for _ in range(800):
        for answer in controller.ask(cases.case())["syncs"]:
            reasons |= {each["reason"] for each in answer["conditions"] or []}
            reasons |= {event[1] for event in answer["events"]}
            counts.add(answer["written"])
            proposals |= {each[0] for each in answer["recommendations"]}
    assert reasons >= {
        *("SucceededGetScale", "FailedGetScale", "FailedUpdateScale", "FailedRescale"),
        *("ReadyForNewScale", "ScaleUpStabilized", "ScaleDownStabilized", "SucceededRescale"),
        *("ValidMetricFound", "ScalingDisabled", "InvalidSelector", "AmbiguousSelector"),
        *(
            "DesiredWithinRange",
            "TooFewReplicas",
            "TooManyReplicas",
            "ScaleUpLimit",
            "ScaleDownLimit",
        ),
        *("ScaledToZero", "NotScaledToZero", "FailedComputeMetricsReplicas", "SelectorRequired"),
        *(f"FailedGet{kind}Metric" for kind in ("Pods", "Object", "External", "Resource")),
        "FailedGetContainerResourceMetric",
    }
    assert None in counts
    assert len(counts) > 20
    assert len(proposals) > 100


@pytest.mark.timeout(_TIMEOUT_S)
def test_what_the_server_refuses_of_mutated_manifests_is_refused_here(controller) -> None:
    found, refused = [], 0
    count = controller.cases // 4
    for text in mutations(count, seed=SEED + 1):
        manifest = json.loads(text, parse_float=_as_yaml_has_it)
        answer, faults = controller.ask({"hpa": manifest, "settings": {}}), _faults(text)
        refused += "refused" in answer
        if ("refused" in answer) != bool(faults):
            found.append(f"{text}\n  server: {answer}\n  gpuscale: {faults}")
    assert found == []
    assert count / 4 < refused < count


def _as_yaml_has_it(number: str) -> float:
    """Return 3 for 3.0, as what reads YAML before an API server does."""
    return int(float(number)) if float(number).is_integer() else float(number)


def _faults(text: str) -> list[str]:
    try:
        hpa_of(json.loads(text), scale_to_zero=False)
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []
