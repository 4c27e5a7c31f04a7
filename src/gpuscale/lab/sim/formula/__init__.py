"""What the pipeline between GPUs and autoscalers would show, by formula."""
