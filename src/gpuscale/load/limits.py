"""The largest loads that may be asked for, for plans and the command line."""

MAX_JOBS = 5_000
USUAL_JOBS = 200
"""More have to be asked for."""
MAX_GPU_PROCESSES = 32
"""On each GPU."""
