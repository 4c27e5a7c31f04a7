"""What a workload is scaled on, for KEDA and for the HPA, awake or at zero. Pure; time comes in."""
