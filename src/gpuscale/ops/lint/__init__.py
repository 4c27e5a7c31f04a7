"""What of rule files and autoscalers can't work, or not as it looks, before anything runs. No I/O."""
