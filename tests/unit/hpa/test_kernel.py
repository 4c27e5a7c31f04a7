"""The kernel by itself: compiled and interpreted give the same, and a loop over syncs remembers as
`decide` does.

Counts are held against the compiled controller in `tests/cluster/test_hpa_differential.py`.
"""

import random
from dataclasses import fields

import pytest

from gpuscale.base import compiling
from gpuscale.hpa.kernel.compiled import compiled_kernel, fastest_kernel
from gpuscale.hpa.kernel.functions import PLAIN, Kernel
from gpuscale.hpa.kernel.memory import (
    DISABLED,
    MAX,
    MIN,
    PERCENT,
    PODS,
    Cells,
    Limits,
    Rules,
    cells_of,
    part,
)
from gpuscale.hpa.kernel.numbers import MIN_INT32
from gpuscale.hpa.kernel.pods import (
    READY,
    SAMPLED,
    STRANGER,
    CpuRules,
    PodColumns,
    PodTotals,
)
from gpuscale.hpa.kernel.proposals import NO_CHOICE, Choice, Proposal, Tolerances

TOLERANCES = Tolerances(0.1, 0.1)
SYNC_MS = 15_000


@pytest.fixture(scope="module")
def compiled() -> Kernel:
    return compiled_kernel(lambda _: None)


def memory(kernel: Kernel, places: int) -> Cells:
    return kernel.column([0] * cells_of(places))


def limits(kernel: Kernel, draw: random.Random) -> Limits:
    def rules(first: int, after: int) -> Rules:
        select = draw.choice((MAX, MAX, MIN, DISABLED))
        return Rules(draw.choice((0, 60_000, 300_000)), select, first, after)

    policies = [
        (draw.choice((PODS, PERCENT)), draw.choice((1, 4, 50, 100)), draw.choice((15_000, 60_000)))
        for _ in range(draw.randint(2, 5))
    ]
    up, down = rules(0, len(policies) // 2), rules(len(policies) // 2, len(policies))
    flat = kernel.column([number for policy in policies for number in policy])
    least, has_behavior = draw.choice((0, 1, 3)), draw.choice((0, 1))
    return Limits(least, 40, has_behavior, 300_000, up, down, flat)


def replayed(kernel: Kernel, seed: int) -> list:
    """Return the counts and the memory of 200 random syncs of one HPA."""
    draw = random.Random(seed)
    bounds, remembered = limits(kernel, draw), memory(kernel, 30)
    count, counts, now_ms = 2, [], 0
    for _ in range(200):
        totals = PodTotals(count, max(0, count - 1), 0, min(1, count), 0, 0, 0, 0, 0, 0, 0)
        totals = totals._replace(counted_milli=draw.randrange(400_000) * count)
        choice = NO_CHOICE
        choice = kernel.chosen(choice, kernel.average_proposal(totals, 100_000, count, TOLERANCES))
        total = draw.randrange(2_000_000)
        asked = kernel.share_proposal(total, 100_000, count, 1, TOLERANCES)
        choice = kernel.chosen(choice, asked)
        count = kernel.sync(bounds, remembered, count, choice, 1, now_ms)
        counts.append(count)
        now_ms += draw.choice((SYNC_MS, SYNC_MS, 60_000, 1))
    return [counts, [int(each) for each in remembered]]


@pytest.mark.parametrize("seed", range(30))
def test_compiled_and_interpreted_give_the_same(compiled: Kernel, seed: int) -> None:
    assert replayed(compiled, seed) == replayed(PLAIN, seed)


def test_pods_may_be_given_one_by_one_or_as_totals(compiled: Kernel) -> None:
    for kernel in (PLAIN, compiled):
        states, values = [SAMPLED, SAMPLED, STRANGER], [30_000, 50_000, 10_000]
        zeros = kernel.column([0] * 3)
        columns = PodColumns(
            kernel.column(states), kernel.column(values), zeros, zeros, zeros, zeros, zeros, zeros
        )
        totals = kernel.pod_totals(columns, CpuRules(0, 0, 0, 0), 0)
        assert READY == 0
        assert totals == PodTotals(2, 2, 0, 0, 1, 80_000, 10_000, 0, 0, 0, 0)
        # (30 + 50 + 10) / 3 = 30 against 10: 3, * 2 pods = 6
        assert kernel.average_proposal(totals, 10_000, 2, TOLERANCES).replicas == 6


def test_sums_wrap_around_in_both(compiled: Kernel) -> None:
    values = [2**62, 2**62, 2**62]
    for kernel in (PLAIN, compiled):
        # 3 * 2^62 is above 2^63 - 1: a total is held there, one of a share as well
        assert kernel.external_total(kernel.column(values), 0) == 2**63 - 1
        assert kernel.external_total(kernel.column(values), 1) == 2**63 - 1
        # -2^62 three times is below -2^63 and wraps around to 2^62
        assert kernel.external_total(kernel.column([-v for v in values]), 0) == 2**62
        # 2^62 * 100 is 25 * 2^64, which is 0 in 64 bits: a utilization of 0 %
        totals = PodTotals(1, 1, 0, 0, 0, 2**62, 0, 1000, 0, 0, 0)
        asked: Proposal = kernel.utilization_proposal(totals, 50, 0, 1, TOLERANCES)
        assert (asked.percent, asked.replicas) == (0, 0)
        assert kernel.value_proposal(10**18, 1, 0, 0, 0, TOLERANCES).replicas == MIN_INT32


def test_a_full_memory_forgets_the_oldest(compiled: Kernel) -> None:
    for kernel in (PLAIN, compiled):
        remembered = memory(kernel, 3)
        rules = Rules(3_600_000, MAX, 0, 1)
        policies = kernel.column([PODS, 100, 1_800_000])
        bounds = Limits(1, 100, 1, 300_000, rules, rules, policies)
        for step, asked in enumerate((5, 6, 7, 8)):
            kernel.sync(bounds, remembered, 5, Choice(asked, 0, 1, 0), 0, step * 1000)
        # the first sync also remembers the count that there was, at the same time as what was asked for
        assert list(remembered[part(remembered, 0) :][:3]) == [7, 8, 6]
        assert list(remembered[part(remembered, 1) :][:3]) == [2000, 3000, 1000]


def test_every_function_of_the_kernel_is_compiled(compiled: Kernel) -> None:
    names = {each.name for each in fields(Kernel)} - {"column"}
    assert all(getattr(compiled, name).py_func.__name__ == name for name in names)


def test_the_first_compilation_is_told_and_the_next_is_not(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(compiling.CACHE_VARIABLE, str(tmp_path))
    said: list[str] = []
    kernel = compiled_kernel(said.append)
    assert said == [f"compiling the HPA's arithmetic, once; it is kept in {tmp_path}"]
    assert kernel.phase(1, 5, 9, 0) == PLAIN.phase(1, 5, 9, 0)
    assert any(tmp_path.rglob("*.nbc"))


def test_without_numba_the_interpreted_kernel_serves(monkeypatch) -> None:
    monkeypatch.setattr(compiling, "numba", lambda: None)
    said: list[str] = []
    assert fastest_kernel(said.append) is PLAIN
    assert "pip install 'gpuscale[plan]'" in said[0]
