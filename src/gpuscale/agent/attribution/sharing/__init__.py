"""Shared GPUs: each container's part, as its scheduler's annotations or device ids say."""
