"""What a workload is scaled on, awake or at zero, whoever asks, KEDA or the HPA. Pure; time comes in."""
