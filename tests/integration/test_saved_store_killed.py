"""A process that fills and saves a store is killed at any moment; what it had said was saved is there."""

import asyncio
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from gpuscale.base.clock import WallClock
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.sources.saving.saver import StoreSaver
from gpuscale.server.sources.saving.settings import SavingSettings

SERIES = 1_000
FILLER = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from gpuscale.base.clock import WallClock
    from gpuscale.series.storage.store import SeriesStore
    from gpuscale.server.sources.saving.saver import StoreSaver
    from gpuscale.server.sources.saving.settings import SavingSettings

    async def main():
        store, clock = SeriesStore(900_000), WallClock()
        saver = StoreSaver(store, SavingSettings(Path(sys.argv[1]), 64 * 1024 * 1024), clock)
        await saver.open()
        run, series = sys.argv[2], int(sys.argv[3])
        refs = [store.ref({"__name__": "x", "i": str(i), "run": run}) for i in range(series)]
        step, group = 0, store.group()
        while True:
            step += 1
            values = [step * 10_000 + i for i in range(series)]
            store.append_many(refs, values, clock.now_ms(), group=group)
            if step % 3 == 0:
                assert await saver.save()
                print(step, flush=True)
            await asyncio.sleep(0.001)

    asyncio.run(main())
    """
)


def test_a_kill_loses_only_what_was_not_saved_yet(tmp_path: Path) -> None:
    chance = random.Random(11)
    acknowledged = {}
    for run in range(4):
        command = [sys.executable, "-c", FILLER, str(tmp_path), str(run), str(SERIES)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines = [process.stdout.readline()]
            time.sleep(chance.uniform(0.05, 0.6))
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
        acknowledged[str(run)] = int(lines[-1])

    store = asyncio.run(_restored(tmp_path))
    series = store.select(())
    assert len(series) == 4 * SERIES
    for each in series:
        number, values = int(each.labels["i"]), list(each.values)
        steps = len(values)
        if each.is_stale():
            # Ended by a later run, because it did not come back.
            values.pop()
            steps -= 1
        assert values == [step * 10_000 + number for step in range(1, steps + 1)]
        assert steps >= acknowledged[each.labels["run"]]


async def _restored(path):
    store = SeriesStore(900_000)
    saver = StoreSaver(store, SavingSettings(path, 64 * 1024 * 1024), WallClock())
    await saver.open()
    assert saver.state.fault is None
    await saver.close()
    return store
