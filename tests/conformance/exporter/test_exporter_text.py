"""The whole text of a scrape, as dcgm-exporter 4.8.2 prints it for the same readings.

Rules from internal/pkg/rendermetrics and internal/pkg/collector of that release: label order, `%f` for
doubles, plain integers, HELP from the counters file, families in field-id order.
"""

import pytest

from gpuscale.agent.formats.dcgm import dcgm_families
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.readings import GpuIdentity, GpuInstance, GpuReading
from gpuscale.base.exposition.write import render_text, six_decimals
from gpuscale.signals import load_counters

CSV = """\
# Format: field, type, help
DCGM_FI_DEV_SM_CLOCK,  gauge, SM clock frequency (in MHz).
DCGM_FI_DEV_GPU_TEMP,    gauge, GPU temperature (in C).
DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Total energy consumption since boot (in mJ).
DCGM_FI_DEV_XID_ERRORS, gauge, Value of the last XID error encountered.
DCGM_FI_DEV_FB_USED, gauge, "Framebuffer memory used, in MiB."
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Ratio of time the graphics engine is active.
DCGM_FI_DRIVER_VERSION, label, Driver Version
"""
UUID = "GPU-2c2f45e8-0000-4000-8000-000000000001"
WHOLE = GpuIdentity(0, UUID, "00000000:1A:00.0", "NVIDIA A100 80GB PCIe")
PART = GpuIdentity(
    0, UUID, "00000000:1A:00.0", "NVIDIA A100 80GB PCIe", GpuInstance(8, "1g.10gb", "MIG-1")
)
READINGS = (
    GpuReading(
        WHOLE,
        0,
        {
            "DCGM_FI_DRIVER_VERSION": "560.35.03",
            "DCGM_FI_DEV_SM_CLOCK": 1410,
            "DCGM_FI_DEV_GPU_TEMP": 41,
            "DCGM_FI_DEV_POWER_USAGE": 75.5,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 9007199254740993,
            "DCGM_FI_DEV_XID_ERRORS": 0,
        },
        {},
    ),
    GpuReading(
        PART,
        0,
        {
            "DCGM_FI_DRIVER_VERSION": "560.35.03",
            "DCGM_FI_DEV_XID_ERRORS": 79,
            "DCGM_FI_DEV_FB_USED": 3,
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.029399,
        },
        {},
    ),
)
BERT = ContainerRef("ml", "bert-0", "train", "0b1c", {"app_kubernetes_io_name": "bert"})
OWNED = Attribution({"MIG-1": (BERT,)})
GPU = (
    f'gpu="0",UUID="{UUID}",pci_bus_id="00000000:1A:00.0",device="nvidia0",'
    'modelName="NVIDIA A100 80GB PCIe"'
)
MIG = f'{GPU},GPU_I_PROFILE="1g.10gb",GPU_I_ID="8"'
NODE = 'Hostname="node-a",DCGM_FI_DRIVER_VERSION="560.35.03"'
POD = 'container="train",namespace="ml",pod="bert-0"'


def text(**options):
    options = {"hostname": "node-a", **options}
    families = dcgm_families(
        READINGS, load_counters(CSV, "my.csv"), OWNED, FamilyOptions(**options)
    )
    return render_text(families, float_text=six_decimals)


def test_scrape_of_a_split_gpu_is_upstreams_text() -> None:
    xid = 'err_code="79",err_msg="GPU has fallen off the bus"'
    assert text() == (
        "# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).\n"
        "# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n"
        f"DCGM_FI_DEV_SM_CLOCK{{{GPU},{NODE}}} 1410\n"
        "# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).\n"
        "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
        f"DCGM_FI_DEV_GPU_TEMP{{{GPU},{NODE}}} 41\n"
        "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).\n"
        "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n"
        f"DCGM_FI_DEV_POWER_USAGE{{{GPU},{NODE}}} 75.500000\n"
        "# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION Total energy consumption since boot (in mJ).\n"
        "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{GPU},{NODE}}} 9007199254740993\n"
        "# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.\n"
        "# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n"
        f'DCGM_FI_DEV_XID_ERRORS{{{GPU},{NODE},err_code="0",err_msg="No Error"}} 0\n'
        f'DCGM_FI_DEV_XID_ERRORS{{{MIG},{NODE},container="train",{xid},namespace="ml",pod="bert-0"}} 79\n'
        "# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used, in MiB.\n"
        "# TYPE DCGM_FI_DEV_FB_USED gauge\n"
        f"DCGM_FI_DEV_FB_USED{{{MIG},{NODE},{POD}}} 3\n"
        "# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active.\n"
        "# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge\n"
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{MIG},{NODE},{POD}}} 0.029399\n"
    )


OLD_POD = 'container_name="train",pod_name="bert-0",pod_namespace="ml"'
DRIVER = 'DCGM_FI_DRIVER_VERSION="560.35.03"'


@pytest.mark.parametrize(
    ("options", "line"),
    [
        pytest.param(
            {"use_old_namespace": True},
            f"{MIG.replace('UUID=', 'uuid=')},{NODE},{OLD_POD}",
            id="use-old-namespace",
        ),
        pytest.param({"hostname": ""}, f"{MIG},{DRIVER},{POD}", id="no-hostname"),
        pytest.param(
            {"replace_blanks_in_model_name": True},
            f"{MIG.replace('NVIDIA A100 80GB PCIe', 'NVIDIA-A100-80GB-PCIe')},{NODE},{POD}",
            id="replace-blanks-in-model-name",
        ),
        pytest.param({"pod_uid": True}, f'{MIG},{NODE},{POD},pod_uid="0b1c"', id="enable-pod-uid"),
        pytest.param(
            {"pod_labels": True},
            f'{MIG},{NODE},app_kubernetes_io_name="bert",{POD}',
            id="enable-pod-labels",
        ),
        pytest.param(
            {"hostname_labels": ("hostname",)},
            f"{MIG},{NODE.replace('Hostname', 'hostname')},{POD}",
            id="hostname as in main after 4.8.2",
        ),
    ],
)
def test_switches_change_labels_as_upstream(options, line: str) -> None:
    assert f"DCGM_FI_DEV_FB_USED{{{line}}} 3\n" in text(**options)
