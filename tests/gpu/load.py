"""A bounded load on one GPU, as a process of its own: `python3 load.py --steps 5x0,5x0.5,5x1`.

Each step is SECONDSxDUTY. The load is given as work, not as time: how long one matrix product takes is
measured while the GPU is free, and each period gets the products that fill its part of it. So two loads that
share a GPU still do the work that they were told to, as long as both fit.

It prints one JSON line when it is ready, one as each step begins and one at the end. With `--wait` it waits
for a line on its standard input in between.
"""

import argparse
import json
import sys
import time

LONGEST_S = 300


def arguments():
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", default="10x1", help="SECONDSxDUTY, separated by commas")
    parser.add_argument("--period-ms", type=float, default=100.0)
    parser.add_argument("--size", type=int, default=4096, help="edge of the square bf16 matrices")
    parser.add_argument(
        "--hold-mib", type=int, default=0, help="memory to hold beside the matrices"
    )
    parser.add_argument("--wait", action="store_true", help="begin at a line on standard input")
    return parser.parse_args()


def steps(text):
    """Return (seconds, duty) of each step; refuses loads that last too long."""
    pairs = [tuple(map(float, each.split("x"))) for each in text.split(",")]
    if sum(seconds for seconds, _ in pairs) > LONGEST_S:
        sys.exit(f"--steps: more than {LONGEST_S} s in all; make it shorter")
    if any(not 0 <= duty <= 1 for _, duty in pairs):
        sys.exit("--steps: a duty is between 0 and 1")
    return pairs


def say(**words) -> None:
    """Print one line for whoever started us."""
    sys.stdout.write(json.dumps({"time_ms": time.time_ns() // 1_000_000, **words}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the load."""
    given = arguments()
    plan = steps(given.steps)
    import torch

    device = torch.device("cuda")
    a = torch.randn(given.size, given.size, device=device, dtype=torch.bfloat16)
    b = torch.randn(given.size, given.size, device=device, dtype=torch.bfloat16)
    out = torch.empty_like(a)
    held = torch.empty(given.hold_mib << 20, dtype=torch.uint8, device=device)

    def products(count) -> None:
        for _ in range(count):
            torch.mm(a, b, out=out)
        torch.cuda.synchronize()

    products(50)
    started = time.monotonic()
    products(200)  # clocks come up
    rounds = max(50, int(1.0 / ((time.monotonic() - started) / 200)))
    started = time.monotonic()
    products(rounds)
    one_s = (time.monotonic() - started) / rounds
    say(event="ready", product_us=round(one_s * 1e6, 1), held_mib=held.numel() >> 20)
    if given.wait:
        sys.stdin.readline()

    period_s = given.period_ms / 1000
    for seconds, duty in plan:
        say(event="step", duty=duty)
        count = round(duty * period_s / one_s)
        end = time.monotonic() + seconds
        due = time.monotonic()
        done = 0
        while time.monotonic() < end:
            products(count) if count else None
            done += count
            due = max(due + period_s, time.monotonic() - period_s)
            time.sleep(max(0.0, due - time.monotonic()))
        say(event="stepped", duty=duty, products=done)
    say(event="end")


if __name__ == "__main__":
    main()
