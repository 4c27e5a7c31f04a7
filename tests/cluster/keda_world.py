"""KEDA, gpuscale's scaler in two replicas, a Prometheus and its source, whose processes can crash one by one.

The test sets a true demand and knows it at each moment, so every count of a Deployment can be judged.
"""

import shutil
import sys
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from gpuscale.testing.prometheus import Prometheus
from gpuscale_testing import Component, ControlPlane, Settings, SimulatedNode, simulated_nodes
from gpuscale_testing.addresses import free_ports
from gpuscale_testing.keda import Keda

sys.path.insert(0, str(Path(__file__).parent))
from headless_service import HeadlessService
from keda_objects import ReplicaWatch, apply, deployment, scaled_object
from stacked import Stacked

TARGET = 10
"""Load per pod."""
REPLICAS = ("127.0.0.1", "127.0.0.2")
KEDA_PROGRAMS = ("keda-operator", "keda-adapter")
SCALERS = ("scaler 1", "scaler 2")


@dataclass(frozen=True, slots=True)
class Need:
    """Pods that the demand takes, from a time on."""

    at: float
    """Of the monotonic clock."""
    pods: int


class KedaWorld(Stacked):
    """All parts, running, for as long as the `with` lasts."""

    def __init__(self, folder, settings=None, *, registered=True) -> None:
        self.folder = folder
        self.parts = {}
        """Processes of our own by name; KEDA's belong to `keda`."""
        self.needs = []
        """All that was needed, in order."""
        self._settings = settings or Settings(hpa_sync_period_s=1.0)
        self._registered = registered
        self._page = folder / "demand.prom"
        self._page_lock = threading.Lock()

    def need(self, pods) -> None:
        """Set the demand: load for so many pods, and items in the queue where it is any."""
        with self._page_lock:
            self._write({"queue_length": 3 * pods, "load_total": TARGET * pods - TARGET / 2})
            self.needs.append(Need(time.monotonic(), pods))

    def kill(self, name) -> None:
        self.keda.kill(name) if name in KEDA_PROGRAMS else self.parts[name].kill()

    def restart(self, name) -> None:
        """Return at once."""
        if name in KEDA_PROGRAMS:
            self.keda.restart(name, wait=False)
        else:
            self.parts[name].restart()

    def apply_scaled(self, name, *, most) -> None:
        """Let gpuscale's scaler scale a Deployment of this name."""
        keys = {
            "workload": f"deployment/{name}",
            "query": "load_total",
            "target": str(TARGET),
            "wakeQuery": "queue_length",
            "wakeDeadline": "10s",
        }
        trigger = self.push_trigger(keys)
        apply(self.plane, deployment(name), scaled_object(name, trigger, most=most))

    def push_trigger(self, keys):
        """Return a trigger on gpuscale's scaler, which pushes."""
        return {**self.trigger(keys), "type": "external-push"}

    def trigger(self, keys):
        """Return a trigger on gpuscale's scaler, which is polled."""
        metadata = {"scalerAddress": self.scaler_address, **keys}
        return {"type": "external", "metadata": metadata}

    def logs(self):
        own = "\n".join(f"--- {name}\n{part.log_tail()}" for name, part in self.parts.items())
        return f"{own}\n{self.keda.logs()}\n{self.plane.logs()}"

    def is_fresh(self):
        """Return whether Prometheus has scraped the source in the last seconds."""
        with (
            closing(HTTPConnection("127.0.0.1", self.prometheus_port, timeout=2.0)) as connection,
            suppress(OSError, HTTPException),
        ):
            connection.request("GET", "/api/v1/query?query=time()-timestamp(up==1)%3C2.5")
            return b'"value"' in connection.getresponse().read()
        return False

    def _start(self, stack) -> None:
        self.plane = stack.enter_context(ControlPlane(self._settings))
        stack.enter_context(simulated_nodes(self.plane, SimulatedNode("h200", gpus=64)))
        source_port, self.prometheus_port, self.scaler_port = free_ports(3)
        self.need(0)
        exporter = Path(__file__).with_name("demand_exporter.py")
        self._run(stack, "source", sys.executable, exporter, self._page, source_port)
        self._start_prometheus(stack, source_port)
        self.database = Prometheus(self.prometheus_port, self.parts["prometheus"].pid)
        """For writing samples of one's own, while it has not crashed."""
        stack.callback(self.database.close)
        self.keda = stack.enter_context(Keda(self.plane, self.folder, registered=self._registered))
        self.service = stack.enter_context(HeadlessService(*REPLICAS))
        self._start_scalers(stack)
        self.watch = stack.enter_context(ReplicaWatch(self.plane))

    @property
    def prometheus_url(self):
        return f"http://127.0.0.1:{self.prometheus_port}"

    @property
    def scaler_address(self):
        return self.service.target("gpuscale-scaler.test", self.scaler_port)

    def _write(self, values) -> None:
        lines = (f"{name} {value}\n" for name, value in values.items())
        temporary = self._page.with_suffix(".new")
        temporary.write_text("".join(lines))
        temporary.replace(self._page)

    def _run(self, stack, name, *command) -> None:
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir(exist_ok=True)
        self.parts[name] = Component(name, [str(word) for word in command], folder, 2.0)
        stack.callback(self.parts[name].end_stop)

    def _start_prometheus(self, stack, source_port) -> None:
        configuration = self.folder / "prometheus.yml"
        configuration.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            "scrape_configs:\n"
            f"- {{job_name: source, static_configs: [{{targets: ['127.0.0.1:{source_port}']}}]}}\n"
        )
        self._run(
            stack,
            "prometheus",
            shutil.which("prometheus"),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={self.folder / 'prometheus' / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.prometheus_port}",
            "--web.enable-remote-write-receiver",
            "--log.level=warn",
        )

    def _start_scalers(self, stack) -> None:
        for name, address in zip(SCALERS, REPLICAS, strict=True):
            self.start_scaler(stack, name, address, self.scaler_port)

    def start_scaler(self, stack, name, address, port, *flags) -> None:
        """Run one more scaler until the stack ends."""
        self._run(
            stack,
            name,
            *(sys.executable, "-m", "gpuscale.cli.main", "scaler"),
            *(f"--bind-address={address}", f"--port={port}"),
            f"--prometheus-url={self.prometheus_url}",
            f"--lister-kubeconfig={self.plane.admin}",
            *("--held-configmap=default/gpuscale-triggers", "--metrics-port=0"),
            "--shutdown-delay-duration=0s",
            *flags,
        )
