"""Queues in numbers: how long things take, how long they wait, and what of that was seen."""
