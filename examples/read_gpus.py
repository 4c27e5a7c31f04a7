"""Read the GPUs of this machine, or simulated ones.

    python read_gpus.py           # two simulated GPUs
    python read_gpus.py nvml      # NVIDIA GPUs; needs pip install 'gpuscale[nvidia]'

Prints:

    GPU 0 NVIDIA H200: ... % busy
    GPU 1 NVIDIA H200: ... % busy
"""

import sys

from gpuscale.readings import open_gpus

source = sys.argv[1] if len(sys.argv) > 1 else "simulated:NVIDIA H200:2"
with open_gpus(source) as gpus:
    for reading in gpus.read():
        busy = reading.values.get("DCGM_FI_DEV_GPU_UTIL", "?")
        print(f"GPU {reading.gpu.index} {reading.gpu.model}: {busy} % busy")
