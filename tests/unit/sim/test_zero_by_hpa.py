"""The plain HPA at zero, by the release and the gate that a scenario names (KEP-2021)."""

from pathlib import Path

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.lab.rehearse.comparison import REPLICAS, changes
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import simulate

SCENARIO = Path(__file__).parent.parent.parent / "data" / "rehearsals" / "zero-hpa.yaml"
TEXT = SCENARIO.read_text(encoding="utf-8")


def setup_of(text: str) -> Setup:
    def read(name: str) -> str:
        raise AssertionError(name)

    return load_setup(text, "s.yaml", read)


def steps(setup: Setup) -> list[tuple[float | None, float | None, float]]:
    found = changes(simulate(setup), REPLICAS)
    return [(each.before, each.after, each.seconds) for each in found]


def test_an_idle_workload_goes_to_zero_its_queue_wakes_it_and_it_goes_again() -> None:
    # Syncs are every 5 s. The seed of the history is of 5 s, and leaves the window of 12 s by 20 s. Requests
    # come from 41.5 s to 101.2 s; the last sync that sees them at work is at 100 s.
    assert steps(find_setup(str(SCENARIO))) == [(1, 0, 20), (0, 4, 45), (4, 2, 65), (2, 0, 115)]


def test_from_1_37_on_no_gate_is_needed_and_a_new_hpa_is_synced_at_once() -> None:
    text = TEXT.replace("hpaScaleToZero: true", 'kubernetesVersion: "1.37"')
    # Syncs are at 1 s, when every hop has looked once, and every 5 s from there. The seed of 1 s leaves the
    # window of 12 s by 16 s; the first sync after 41.5 s is at 46 s, the last one before 101.2 s at 101 s.
    assert steps(setup_of(text)) == [(1, 0, 16), (0, 4, 46), (4, 2, 66), (2, 0, 116)]


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("    hpaScaleToZero: true\n", ""),
        TEXT.replace("hpaScaleToZero: true", 'kubernetesVersion: "1.35"'),
        TEXT.replace(
            "hpaScaleToZero: true", 'kubernetesVersion: "1.37"\n    hpaScaleToZero: false'
        ),
    ],
    ids=["default release", "before 1.37", "gate turned off"],
)
def test_without_the_gate_such_an_hpa_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        setup_of(text)
    assert "found minReplicas 0 in HorizontalPodAutoscaler llm" in str(caught.value)


def test_a_deployment_that_begins_at_zero_is_paused_from_1_36_on_and_wakes_before() -> None:
    text = TEXT.replace("replicas: 1\n", "replicas: 0\n")
    assert steps(setup_of(text)) == []
    older = text.replace(
        "hpaScaleToZero: true", 'kubernetesVersion: "1.35"\n    hpaScaleToZero: true'
    )
    assert steps(setup_of(older))[0] == (0, 4, 45)


def test_a_version_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="a Kubernetes version such as"):
        setup_of(TEXT.replace("hpaScaleToZero: true", "kubernetesVersion: newest"))
