"""Copies from one GPU to another for some seconds: `python3 copies.py SECONDS FROM TO`, two indices.

It prints "ready" when it begins, and at the end how many bytes it has copied a second.
"""

import sys
import time

import torch

BLOCK_BYTES = 1 << 28
LONGEST_S = 60

seconds = min(float(sys.argv[1]), LONGEST_S)
giver, taker = map(int, sys.argv[2:])
source = torch.zeros(BLOCK_BYTES, dtype=torch.uint8, device=f"cuda:{giver}")
target = torch.empty_like(source, device=f"cuda:{taker}")
target.copy_(source)
torch.cuda.synchronize(giver)
sys.stdout.write("ready\n")
sys.stdout.flush()
started = time.monotonic()
copied = 0
while time.monotonic() - started < seconds:
    for _ in range(8):
        target.copy_(source, non_blocking=True)
    torch.cuda.synchronize(giver)
    torch.cuda.synchronize(taker)
    copied += 8 * BLOCK_BYTES
sys.stdout.write(f"{copied / (time.monotonic() - started)}\n")
