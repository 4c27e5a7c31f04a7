"""GPUs that schedulers cut into parts: who has which part of which GPU, by each scheduler's own words."""
