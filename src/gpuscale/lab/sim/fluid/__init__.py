"""A scenario as a fluid: whole services in steps of one HPA sync, `simulate --fidelity fluid`."""
