"""Models against the figures of their public data sheets."""

import pytest

from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.models import expected_models, find_model

# Power limit in W and memory in GB as advertised; of a K80 and an MI250X per GPU, as the driver shows it.
# The MI250X' 560 W are those of its module.
DATA_SHEETS = {
    "Tesla K80": (149, 12),
    "Tesla P100-PCIE-16GB": (250, 16),
    "Tesla V100-SXM2-16GB": (300, 16),
    "Tesla V100-SXM2-32GB": (300, 32),
    "Tesla V100-PCIE-16GB": (250, 16),
    "Tesla V100-PCIE-32GB": (250, 32),
    "Tesla T4": (70, 16),
    "NVIDIA A10": (150, 24),
    "NVIDIA A10G": (300, 24),
    "NVIDIA A30": (165, 24),
    "NVIDIA A40": (300, 48),
    "NVIDIA A100-SXM4-40GB": (400, 40),
    "NVIDIA A100-PCIE-40GB": (250, 40),
    "NVIDIA A100-SXM4-80GB": (400, 80),
    "NVIDIA A100 80GB PCIe": (300, 80),
    "NVIDIA L4": (72, 24),
    "NVIDIA L40": (300, 48),
    "NVIDIA L40S": (350, 48),
    "NVIDIA RTX 6000 Ada Generation": (300, 48),
    "NVIDIA H100 80GB HBM3": (700, 80),
    "NVIDIA H100 PCIe": (350, 80),
    "NVIDIA H100 NVL": (400, 94),
    "NVIDIA H200": (700, 141),
    "NVIDIA H200 NVL": (600, 141),
    "NVIDIA B200": (1000, 180),
    "NVIDIA GB200": (1200, 186),
    "NVIDIA B300 SXM6 AC": (1100, 288),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": (600, 96),
    "AMD Instinct MI210": (300, 64),
    "AMD Instinct MI250X": (560 / 2, 128 / 2),
    "AMD Instinct MI300X": (750, 192),
    "AMD Instinct MI325X": (1000, 256),
    "AMD Instinct MI355X": (1400, 288),
}
# NVLink as data sheets have it. Bridges that join two cards (A30, A40, A100 and H100 PCIe, H100 NVL) do not
# count; an H200 NVL's joins four.
NVLINK = {"SXM2", "SXM4", "HBM3", "H200", "B200", "GB200", "B300"}
# Instances per GPU in NVIDIA's MIG User Guide, release 610, and 620 for the B300; all others have no MIG.
MIG = {"A30": 4, "A100": 7, "H100": 7, "H200": 7, "B200": 7, "GB200": 7, "B300": 7, "PRO": 4}


def test_every_model_is_listed_under_its_name() -> None:
    assert MODELS.keys() == DATA_SHEETS.keys()
    assert all(model.name == name for name, model in MODELS.items())


@pytest.mark.parametrize(("name", "sheet"), DATA_SHEETS.items())
def test_model_has_the_power_and_memory_of_its_data_sheet(name, sheet) -> None:
    power_w, memory_gb = sheet
    model = MODELS[name]
    assert model.max_power_w == power_w
    # Drivers report a little less or more than the round number, by ECC and by what GB means.
    assert model.memory_mib / 1024 == pytest.approx(memory_gb, rel=0.08)


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_idle_is_below_the_limit_in_every_respect(model) -> None:
    assert model.idle_power_w < model.max_power_w
    assert model.idle_temp_c < model.max_temp_c
    assert model.idle_sm_clock_mhz < model.max_sm_clock_mhz
    assert model.idle_memory_clock_mhz <= model.memory_clock_mhz
    assert 0 <= model.reserved_mib < model.memory_mib


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_mig_is_what_the_user_guide_says(model) -> None:
    word = model.name.replace("-", " ").split()[2 if "RTX" in model.name else 1]
    assert model.mig_slices == (0 if model.vendor == "AMD" else MIG.get(word, 0))


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_nvlink_is_that_of_the_data_sheet(model) -> None:
    assert model.has_nvlink == bool(NVLINK & {*model.name.replace("-", " ").split()})


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("NVIDIA A10G", "NVIDIA A10G"),
        ("A10G", "NVIDIA A10G"),
        ("l40s", "NVIDIA L40S"),
        ("A100-40GB", "NVIDIA A100-SXM4-40GB"),
        ("a100 80gb pcie", "NVIDIA A100 80GB PCIe"),
        ("H100", "NVIDIA H100 80GB HBM3"),
        ("V100 32GB", "Tesla V100-SXM2-32GB"),
        ("T4", "Tesla T4"),
        ("NVIDIA T4", "Tesla T4"),
        ("B300", "NVIDIA B300 SXM6 AC"),
        ("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        ("MI300X", "AMD Instinct MI300X"),
        ("amd instinct mi355x", "AMD Instinct MI355X"),
        # as node labels of GKE and of GPU feature discovery have them
        ("nvidia-tesla-t4", "Tesla T4"),
        ("nvidia-h100-mega-80gb", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA-A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
    ],
)
def test_models_are_found_by_what_people_type(typed: str, name: str) -> None:
    assert find_model(typed, MODELS.values()) is MODELS[name]


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_no_name_stands_for_two_models(model) -> None:
    for name in (model.name, *model.aliases):
        others = [other for other in MODELS.values() if other is not model]
        assert find_model(name, others) is None


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("L40SX", "a GPU model; did you mean NVIDIA L40S?"),
        ("h100 pci", "a GPU model; did you mean NVIDIA H100 PCIe?"),
        (
            "A100",
            "one of NVIDIA A100-SXM4-40GB, NVIDIA A100-PCIE-40GB, NVIDIA A100-SXM4-80GB, "
            "NVIDIA A100 80GB PCIe",
        ),
    ],
)
def test_what_may_have_been_meant_is_named(typed: str, expected: str) -> None:
    assert find_model(typed, MODELS.values()) is None
    assert expected_models(typed, MODELS.values()) == expected


@pytest.mark.parametrize("typed", ["Voodoo", "", "--", "x" * 10_000])
def test_a_name_like_no_other_gets_the_whole_list(typed: str) -> None:
    assert expected_models(typed, MODELS.values()).startswith("one of A10, A100 80GB PCIe, ")
