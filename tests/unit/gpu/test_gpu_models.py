"""Models against the figures of their public data sheets."""

import pytest

from gpuscale.gpu.models import MODELS

# Power limit in W (of a K80: per GPU, as the driver shows it) and memory in GB as advertised.
DATA_SHEETS = {
    "Tesla K80": (149, 12),
    "Tesla V100-SXM2-16GB": (300, 16),
    "Tesla T4": (70, 16),
    "NVIDIA A10": (150, 24),
    "NVIDIA A100-SXM4-80GB": (400, 80),
    "NVIDIA L4": (72, 24),
    "NVIDIA H100 80GB HBM3": (700, 80),
    "NVIDIA H200": (700, 141),
}


def test_every_model_is_listed_under_its_name():
    assert MODELS.keys() == DATA_SHEETS.keys()
    assert all(model.name == name for name, model in MODELS.items())


@pytest.mark.parametrize(("name", "sheet"), DATA_SHEETS.items())
def test_model_has_the_power_and_memory_of_its_data_sheet(name, sheet):
    power_w, memory_gb = sheet
    model = MODELS[name]
    assert model.max_power_w == power_w
    # Drivers report a little less or more than the round number, by ECC and by what GB means.
    assert model.memory_mib / 1024 == pytest.approx(memory_gb, rel=0.08)


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_idle_is_below_the_limit_in_every_respect(model):
    assert model.idle_power_w < model.max_power_w
    assert model.idle_temp_c < model.max_temp_c
    assert model.idle_sm_clock_mhz < model.max_sm_clock_mhz
    assert model.idle_memory_clock_mhz <= model.memory_clock_mhz
    assert 0 <= model.reserved_mib < model.memory_mib
