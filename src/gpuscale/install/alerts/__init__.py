"""Alert rules about GPUs and their scaling, made by code: names and thresholds in, rule groups out."""
