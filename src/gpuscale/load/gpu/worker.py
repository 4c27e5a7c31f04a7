"""One process of a load on one GPU, which `holding` starts; not a command for users.

Its standard input brings an order on each line, its standard output says what becomes of it, both as JSON:
`open`, `allocate`, `begin`, then `percent` as often as it changes. It ends, and with it all that it holds of
the GPU, when its time is over, when its input ends, or at the order to end.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from gpuscale.base.errors import GpuscaleError
from gpuscale.load.gpu.driver import CudaDriver, Device, Gpu
from gpuscale.load.gpu.pacing import Bursts, Turn

_STDIN = 0
_REPORT_S = 0.25
_READ_BYTES = 65_536
Order = Mapping[str, Any]


class Orders:
    """Lines of standard input."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []
        self.is_over = False
        """Whether there will be no more: the process that gave them has ended."""

    def wait(self, until_s: float | None = None) -> Order | None:
        """Return the next order; None if none comes up to a time of the monotonic clock."""
        while not self._lines and not self.is_over:
            if until_s is not None:
                left_s = until_s - time.monotonic()
                if left_s <= 0 or not select.select([_STDIN], [], [], left_s)[0]:
                    return None
            chunk = os.read(_STDIN, _READ_BYTES)
            self.is_over = not chunk
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._lines += lines
        if not self._lines:
            return None
        found: Order = json.loads(self._lines.pop(0))
        return found

    def expect(self, kind: str) -> Order:
        """Return the next order, which must be of this kind.

        Raises:
            SystemExit: there are no more, which is an order too.
        """
        found = self.wait()
        if found is None or kind not in found:
            raise SystemExit(0)
        return found


def main() -> int:
    """Obey the orders on standard input; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process reports it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    orders = Orders()
    try:
        order = orders.expect("open")
        driver = CudaDriver()
        with driver.open(find_device(driver.devices(), str(order["open"]))) as gpu:
            free, total = gpu.memory_bytes()
            _say(event="open", free=free, total=total)
            size = int(orders.expect("allocate")["allocate"])
            if size:
                gpu.hold(size)
            _say(event="ready")
            _work(gpu, orders, orders.expect("begin"))
    except GpuscaleError as error:
        _say(event="failed", error=str(error))
        return 1
    except BrokenPipeError:
        return 0  # the parent has gone
    return 0


def find_device(devices: tuple[Device, ...], uuid: str) -> Device:
    """Return the device with a UUID; the only one if the driver shows just one, as with MIG.

    Raises:
        GpuscaleError: it is not there any more.
    """
    for device in devices:
        if device.uuid == uuid:
            return device
    if len(devices) == 1 and not uuid:
        return devices[0]
    raise GpuscaleError(f"found no GPU {uuid} any more, expected it among {len(devices)}")


def _work(gpu: Gpu, orders: Orders, begin: Order) -> None:
    bursts = Bursts(float(begin["begin"]), Turn(int(begin["index"]), int(begin["of"])))
    until_s, percent = float(begin["until"]), float(begin["percent"])
    blocks = max(1, round(gpu.device.multiprocessors * float(begin["multiprocessors"]) / 100))
    busy_ms, report_s = 0.0, 0.0
    while not orders.is_over:
        order = orders.wait(min(bursts.due_s(), until_s))
        if order is not None:
            if "percent" not in order:
                break  # the order to end
            percent = float(order["percent"])
            continue
        now_s = time.monotonic()
        if now_s >= until_s:
            break
        busy_ms += gpu.take_busy_ms()
        length_ns = bursts.take(now_s, gpu.unfinished, percent)
        if length_ns:
            gpu.launch(length_ns, blocks)
        if now_s >= report_s:
            report_s = now_s + _REPORT_S
            _say(
                event="busy", at=now_s, ms=busy_ms, launched=bursts.launched, skipped=bursts.skipped
            )
    gpu.synchronize()
    busy_ms += gpu.take_busy_ms()
    _say(
        event="end",
        at=time.monotonic(),
        ms=busy_ms,
        launched=bursts.launched,
        skipped=bursts.skipped,
    )


def _say(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
