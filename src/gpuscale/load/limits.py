"""How much load may be asked for at most, in one place for plans and for the command line."""

MAX_JOBS = 5_000
USUAL_JOBS = 200
"""More have to be asked for."""
MAX_GPU_PROCESSES = 32
"""On each GPU."""
