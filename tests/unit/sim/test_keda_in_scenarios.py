"""ScaledObjects in the simulator: from zero by a queue, the HPA's counts, back to zero; what is refused.

Expected times follow from the scenario file's intervals, as the cases say.
"""

from pathlib import Path

import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.base.loads import StepsLoad
from gpuscale.lab.rehearse.comparison import REPLICAS, changes
from gpuscale.lab.rehearse.target import check_triggers
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.load.costs import ServiceModel
from gpuscale.lab.sim.load.requests import request_families
from gpuscale.lab.sim.load.service import SimulatedService
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import simulate

SCENARIO = Path(__file__).parent.parent.parent / "data" / "rehearsals" / "keda.yaml"
TEXT = SCENARIO.read_text(encoding="utf-8")


def setup_of(text: str) -> Setup:
    def read(name: str) -> str:
        raise AssertionError(name)

    return load_setup(text, "s.yaml", read)


def moves(text: str) -> list[tuple[str, float | None, float | None, float]]:
    found = changes(simulate(setup_of(text)), REPLICAS)
    return [
        (each.object.partition("/")[0], each.before, each.after, each.seconds) for each in found
    ]


KEDA, HPA = "ScaledObject", "HorizontalPodAutoscaler"


def test_a_queue_wakes_a_workload_that_the_hpa_scales_and_the_cooldown_ends() -> None:
    # Polls are at 0.25 s and then every 4 s, HPA syncs every 5 s. Requests come from 12.9 s to 71.2 s; the
    # last poll that sees busy GPUs is at 72.25 s, and 30 s of cooldown end with the one at 104.25 s.
    assert moves(TEXT) == [
        (KEDA, 0, 1, 16.25),
        (HPA, 1, 4, 20),
        (HPA, 4, 2, 40),
        (HPA, 2, 1, 85),
        (KEDA, 1, 0, 104.25),
    ]


def test_a_shipped_file_and_its_text_are_the_same_scenario() -> None:
    assert find_setup(str(SCENARIO)).scaled_objects == setup_of(TEXT).scaled_objects


def test_a_paused_count_is_written_and_nothing_else_happens() -> None:
    text = TEXT.replace(
        "metadata: {name: llm}\n        spec:\n          scaleTargetRef",
        'metadata: {name: llm, annotations: {autoscaling.keda.sh/paused-replicas: "2"}}\n'
        "        spec:\n          scaleTargetRef",
    )
    document = simulate(setup_of(text))
    assert changes(document, REPLICAS) == ()
    series = document["series"]
    assert isinstance(series, dict)
    assert series["replicas/llm/ready"][-1] == 2
    assert "hpa/keda-hpa-llm/current" not in series


def test_a_drop_to_zero_goes_past_the_hpa_where_the_queue_is_all_there_is() -> None:
    # Without the second trigger nothing is active once the queue is empty, though requests are served.
    one = TEXT[: TEXT.index("            - type: prometheus", TEXT.index("threshold:"))]
    text = one + TEXT[TEXT.index("  pipeline:") :]
    drops = [each for each in moves(text) if each[:3:2] == (KEDA, 0)]
    assert drops
    assert drops[0][1] == 1 or drops[0][1] == 4


def test_a_failing_query_brings_the_fallback_after_the_threshold() -> None:
    # One query gives two rows from the start: each poll fails. The third failure is above the threshold of 2,
    # at 8.25 s; the fallback counts as active and wakes, and 3 replicas at a threshold of 60 are 180 / 60.
    text = (
        TEXT.replace(
            'query: sum(DCGM_FI_DEV_GPU_UTIL{exported_pod=~"llm-.*"})',
            """query: vector(1) or label_replace(vector(1), "a", "b", "", "")""",
        )
        .replace(
            "          cooldownPeriod: 30\n",
            "          cooldownPeriod: 30\n          fallback: {failureThreshold: 2, replicas: 3}\n",
        )
        .replace("rate: 12}", "rate: 0}")
    )
    assert moves(text)[:2] == [(KEDA, 0, 1, 8.25), (HPA, 1, 3, 10)]


OURS = """
            - type: {}
              metadata:
                scalerAddress: gpuscale-scaler:9090
                workload: deployment/llm
                query: sum(DCGM_FI_DEV_GPU_UTIL{{exported_pod=~"llm-.*"}})
                target: "60"
                activationTarget: "5"
                wakeQuery: sum(gpuscale_simulated_requests_waiting{{deployment="llm"}})
"""


def with_our_trigger(kind: str) -> str:
    before, _, rest = TEXT.partition("          triggers:\n")
    return f"{before}          triggers:{OURS.format(kind)}{rest[rest.index('  pipeline:') :]}"


@pytest.mark.parametrize(("kind", "wakes_by_s"), [("external", 17.0), ("external-push", 15.0)])
def test_our_own_scalers_triggers_wake_scale_and_end(kind: str, wakes_by_s: float) -> None:
    # A scrape a second, the scaler's look a second: a push comes within 2.1 s of the first request at 12.9 s;
    # a poll every 4 s sees it at 16.25 s.
    found = moves(with_our_trigger(kind))
    assert found[0][:3] == (KEDA, 0, 1)
    assert 12.9 < found[0][3] <= wakes_by_s
    assert found[-1][:3:2] == (KEDA, 0)
    # 120 % in all, held against 60 a pod.
    assert 2 in [after for _, _, after, _ in found]


def test_a_rehearsal_refuses_a_trigger_that_it_can_not_answer() -> None:
    with pytest.raises(UsageError, match=r"spec.triggers\[0\].type: found external-push"):
        check_triggers(setup_of(with_our_trigger("external-push")))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            "type: prometheus",
            "type: rabbitmq",
            "s.yaml#manifests:23: spec.triggers[0].type: found 'rabbitmq', expected one of",
        ),
        (
            'threshold: "20"',
            'threshold: "0"',
            "metadata.threshold: found '0', expected more than zero",
        ),
        (
            "scaleTargetRef: {name: llm}",
            "scaleTargetRef: {name: other}",
            "found Deployment default/other",
        ),
        (
            "cooldownPeriod: 30",
            'advanced: {scalingModifiers: {formula: a + b, target: "1"}}',
            "spec.advanced.scalingModifiers: found scalingModifiers, expected none",
        ),
    ],
)
def test_what_can_not_be_simulated_is_refused_at_its_line(
    before: str, after: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        setup_of(TEXT.replace(before, after, 1))
    assert expected in str(caught.value)


def test_one_workload_has_one_autoscaler() -> None:
    scaled = TEXT[TEXT.index("        apiVersion: keda.sh") : TEXT.index("  pipeline:")]
    second = scaled.replace("metadata: {name: llm}", "metadata: {name: again}")
    text = TEXT.replace("  pipeline:", f"        ---\n{second}  pipeline:")
    with pytest.raises(ConfigError) as caught:
        setup_of(text)
    assert "default/llm, which ScaledObject llm scales" in str(caught.value)


def test_requests_are_counted_whole_and_there_without_a_pod() -> None:
    service = SimulatedService(ServiceModel(0.1, 0.0, 8, 100.0), StepsLoad(((0.0, 1.5),)), 0)
    service.advance(3_000, 0)
    waiting, running, total, served = request_families({"ml/web": service})
    assert waiting.samples[0].labels == (("namespace", "ml"), ("deployment", "web"))
    values = [each.samples[0].value for each in (waiting, running, total, served)]
    assert values == [4, 0, 4, 0]  # 4.5 requests, of which no pod works on any
    # Two pods do all of 1.5 a second, each request for 0.1 s: 0.15 run at a time, by Little's law.
    service.advance(20_000, 2)
    _, running, total, served = request_families({"ml/web": service})
    assert (running.samples[0].value, total.samples[0].value) == (0, 30)
    assert served.samples[0].value == 30
    assert waiting.name.startswith("gpuscale_simulated_")
