"""The first poll of many ScaledObjects after a scaler started: each call has its value, if it takes a while.

KEDA asks for the triggers of one ScaledObject one after the other, for all ScaledObjects at a time. There are
more than a second's worth of questions to the Prometheus, so that the last have to wait for their turn.
"""

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

import grpc
import pytest
from aiohttp.test_utils import unused_port

from background import until
from gpuscale.testing.prometheus import serve
from scaler_client import Client, own_channel, ref

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(300)]

GPUSCALE = str(Path(sys.executable).parent / "gpuscale")
OBJECTS, TRIGGERS = 300, 3


def length(number: int, part: int) -> float:
    return float(number % 50 + part)


async def first_poll(url: str, held: Path) -> Counter[str]:
    """Start a scaler and return what the first poll of every trigger gets."""
    port = unused_port()
    addresses = ("--bind-address=127.0.0.1", f"--port={port}", "--metrics-port=0")
    flags = (f"--prometheus-url={url}", f"--held-file={held}", "--shutdown-delay-duration=0s")
    process = await asyncio.create_subprocess_exec(
        GPUSCALE, "scaler", *addresses, *flags, stderr=asyncio.subprocess.DEVNULL
    )
    answers: Counter[str] = Counter()
    try:
        async with own_channel(port) as channel:
            keda = Client(channel)

            async def poll(number: int) -> None:
                for part in range(TRIGGERS):
                    query = f'queue_length{{object="{number}",part="{part}"}}'
                    asked = ref(f"so{number}", query=query, metricName=f"q{number}-{part}")
                    del asked.scalerMetadata["workload"]
                    try:
                        (found,) = (await keda.metrics(asked)).metricValues
                    except grpc.aio.AioRpcError as error:
                        answers[f"{error.code().name}: {error.details()}"] += 1
                        continue
                    is_right = found.metricValueFloat == length(number, part)
                    answers["right" if is_right else "wrong"] += 1

            async with asyncio.timeout(60):
                await channel.channel_ready()
            await asyncio.gather(*map(poll, range(OBJECTS)))
            await until(held.exists)  # decisions of this process, for the next
    finally:
        process.terminate()
        await process.wait()
    return answers


async def test_no_trigger_is_unavailable_after_a_start_or_a_restart(tmp_path: Path) -> None:
    now_ms = round(time.time() * 1000)
    samples = [
        (
            {"__name__": "queue_length", "object": str(number), "part": str(part)},
            now_ms,
            length(number, part),
        )
        for number in range(OBJECTS)
        for part in range(TRIGGERS)
    ]
    (tmp_path / "prometheus").mkdir()
    with serve(samples, tmp_path / "prometheus") as prometheus:
        for _ in range(2):
            found = await first_poll(prometheus.url, tmp_path / "held.json")
            assert found == {"right": OBJECTS * TRIGGERS}
