"""Results of the pipeline between GPUs and HPAs, computed by formula instead of text and PromQL."""
