"""What a scenario's pools leave out and the catalogue of instance types says."""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.lab.sim.scenario.loading import load_setup

SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: s}
spec:
  duration: 10m
  MORE
  manifests:
    - inline: |
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web}
        spec:
          selector: {matchLabels: {app: web}}
          template:
            metadata: {labels: {app: web}}
            spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}
  nodePools:
    - {name: gpu, min: 1, max: 3, POOL}
  workloads:
    - {deployment: web, service: {gpuSecondsPerRequest: 0.1}, load: {shape: constant, rate: 1}}
"""
FILES = {
    "prices.csv": "name,gpuModel,gpus,cpu,memory,pricePerHour\ng6.xlarge,,,,,0.5\nm9,L4,2,16,64Gi,1\n"
}


def setup_of(pool, more="", instance_types=None):
    text = SCENARIO.replace("POOL", pool).replace("MORE\n", f"{more}\n")
    return load_setup(text, "s.yaml", FILES.__getitem__, instance_types=instance_types)


def facts(setup):
    (pool,) = setup.pools
    machine = pool.machine
    cpu, memory = (str(machine.shape.allocatable[each]) for each in ("cpu", "memory"))
    price = machine.shape.offerings[0].price_per_hour
    return machine.gpu_model.name, machine.gpus, cpu, memory, price, setup.currency


def faults(pool, more=""):
    with pytest.raises(ConfigError) as error:
        setup_of(pool, more)
    return [(each.field, each.expected) for each in error.value.problems]


def test_a_known_type_is_enough() -> None:
    assert facts(setup_of("instanceType: g6.12xlarge")) == (
        "NVIDIA L4",
        4,
        "48",
        "192Gi",
        4.6016,
        "USD",
    )


def test_its_price_comes_with_its_currency() -> None:
    found = facts(setup_of("instanceType: ecs.gn7i-c8g1.2xlarge"))
    assert found == ("NVIDIA A10", 1, "8", "30Gi", 9.5326, "CNY")


def test_a_price_in_another_currency_is_not_known() -> None:
    found = facts(setup_of("instanceType: ecs.gn7i-c8g1.2xlarge, currency: USD"))
    assert found[-2:] == (None, "USD")


def test_what_is_given_wins() -> None:
    given = "instanceType: g6.xlarge, gpuModel: T4, gpus: 2, cpu: 3500m, memory: 14Gi"
    assert facts(setup_of(f"{given}, pricePerHour: 7, currency: EUR")) == (
        "Tesla T4",
        2,
        "3500m",
        "14Gi",
        7,
        "EUR",
    )
    assert facts(setup_of("instanceType: g6.xlarge, pricePerHour: 7"))[-2:] == (7, "USD")


def test_a_type_that_nobody_knows_needs_what_it_is() -> None:
    found = facts(setup_of("instanceType: mine, gpuModel: L4, gpus: 1"))
    assert found == ("NVIDIA L4", 1, "8", "64Gi", None, "USD")


def test_a_type_that_nobody_knows_is_one_fault() -> None:
    field = "spec.nodePools[0].instanceType"
    assert faults("instanceType: mine") == [(field, "a known instance type")]
    assert faults("instanceType: g6.xlarg") == [
        (field, "a known instance type; did you mean g6.xlarge?")
    ]
    assert faults("instanceType: mine, gpuModel: L4") == [(field, "a known instance type")]


def test_without_a_type_both_fields_are_needed() -> None:
    ((field, expected),) = faults("provider: aks")
    assert (field, expected) == (
        "spec.nodePools[0]",
        "found no gpuModel and gpus, expected both, an instanceType, or instanceTypes",
    )


def test_each_of_several_types_is_enough_by_its_name() -> None:
    (pool,) = setup_of("instanceTypes: [{name: g2-standard-8}, {name: g6.12xlarge}]").pools
    assert [(each.gpu_model.name, each.gpus) for each in pool.machines] == [
        ("NVIDIA L4", 1),
        ("NVIDIA L4", 4),
    ]
    sold = [
        [(each.capacity_type, each.price_per_hour) for each in machine.shape.offerings]
        for machine in pool.machines
    ]
    assert sold == [[("on-demand", 0.853624), ("spot", 0.479872)], [("on-demand", 4.6016)]]


def test_a_type_among_several_without_a_price_needs_its_offerings() -> None:
    field = "spec.nodePools[0].instanceTypes[0]"
    expected = "at least one: no price of p5e.48xlarge in USD is known"
    assert faults("instanceTypes: [{name: p5e.48xlarge}]") == [(f"{field}.offerings", expected)]
    ((where, _),) = faults("instanceTypes: [{name: mine, offerings: [{pricePerHour: 1}]}]")
    assert where == f"{field}.name"


def test_a_part_of_a_gpu_is_simulated_only_where_one_says_as_what() -> None:
    ((field, expected),) = faults("instanceType: g6f.large")
    assert field == "spec.nodePools[0].instanceType"
    assert expected.startswith("whole GPUs")
    assert facts(setup_of("instanceType: g6f.large, gpus: 1"))[:2] == ("NVIDIA L4", 1)


def test_a_model_that_can_not_be_simulated_has_to_be_described() -> None:
    ((field, expected),) = faults("instanceType: g7.2xlarge")
    assert field == "spec.nodePools[0].instanceType"
    assert "spec.gpuModels" in expected
    name = "NVIDIA RTX PRO 4500 Blackwell Server Edition"
    described = f"gpuModels: [{{name: {name}, memoryGib: 32}}]"
    assert facts(setup_of("instanceType: g7.2xlarge", described))[:2] == (name, 1)


def test_the_scenarios_file_adds_types_and_the_callers_goes_before_it() -> None:
    more = "instanceCatalogue: {file: prices.csv}"
    assert facts(setup_of("instanceType: m9", more)) == ("NVIDIA L4", 2, "16", "64Gi", 1, "USD")
    assert facts(setup_of("instanceType: g6.xlarge", more))[-2:] == (0.5, "USD")
    theirs = ("name,pricePerHour\ng6.xlarge,0.4\n", "theirs.csv")
    assert facts(setup_of("instanceType: g6.xlarge", more, theirs))[-2:] == (0.4, "USD")


def test_faults_of_the_file_are_the_scenarios() -> None:
    more = 'instanceCatalogue: {inline: "name,cpu\\ng6.xlarge,x\\n"}'
    assert faults("instanceType: g6.xlarge", more) == [
        ("cpu", "an amount above 0, such as 8 or 64Gi")
    ]
