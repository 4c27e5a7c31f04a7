"""KEDA's operator, metrics server and admission webhooks as processes on loopback, beside a control plane.

All are as released. What a chart would set up around them is left out: the rotation of certificates, and
roles, since all act as the cluster's admin.
"""

import base64
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Self

from gpuscale_testing.addresses import free_ports, is_listening
from gpuscale_testing.aggregation import aggregated_api, serving_name
from gpuscale_testing.certificates import KeyPair
from gpuscale_testing.component import Component, with_variables_alone
from gpuscale_testing.metrics_apis import MetricsApi, is_ready
from gpuscale_testing.plane import ControlPlane
from gpuscale_testing.programs.toolset import find

Program = Literal["keda-operator", "keda-adapter", "keda-webhooks"]

EXTERNAL_METRICS = "external.metrics.k8s.io/v1beta1"
_NAMESPACE = "keda"
_SERVICE = "keda-operator-metrics-apiserver"
_VALIDATED = ("scaledobject", "scaledjob", "triggerauthentication", "clustertriggerauthentication")
_READY_S = 60.0
_GRACE_S = 5.0


class Keda:
    """KEDA on a control plane, for as long as the `with` lasts; its CRDs stay.

    ```
    with Keda(plane, tmp_path) as keda:
        plane.apply(scaled_object)
        keda.kill("keda-operator")
        keda.restart("keda-operator")
    ```

    How fast it polls is for each ScaledObject to say, with `pollingInterval`. A scaler that serves with a
    certificate of the control plane's `ca` is trusted with `enableTLS`.

    Args:
        plane: a running control plane.
        folder: for certificates and logs; a folder of its own below is made.
        registered: whether the control plane serves external.metrics.k8s.io by KEDA.
        webhooks: whether KEDA judges its objects before the control plane takes them.
        flags: program name to flags that are added at the end, where they win.
        environment: variables for all programs, such as `KEDA_HTTP_DEFAULT_TIMEOUT`; they inherit none.
    """

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        *,
        registered: bool = True,
        webhooks: bool = False,
        flags: Mapping[Program, Sequence[str]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._plane = plane
        self._folder = folder / "keda"
        self._registered = registered
        self._webhooks = webhooks
        self._flags = flags or {}
        self._environment = environment or {}
        self._running = ExitStack()
        self._components: dict[Program, Component] = {}
        self._ready: dict[Program, Callable[[], bool]] = {}
        self.port = 0
        """Of the metrics server, HTTPS on 127.0.0.1, once it was started."""
        self.metrics_port = 0
        """Of the operator's own metrics, HTTP on 127.0.0.1."""

    def __enter__(self) -> Self:
        """Start them and return once they are ready, and available if registered.

        Raises:
            UnavailableError: a program is not built, has ended, or is not ready within a minute.
            UpstreamError: the control plane refuses the definitions, or does not reach the metrics server.
        """
        with ExitStack() as starting:
            self._start(starting)
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def kill(self, program: Program) -> None:
        """Take a program away at once, as a crash would; returns when it is gone."""
        self._components[program].kill()

    def restart(self, program: Program, *, wait: bool = True) -> None:
        """Start a program again with its ports and certificates; one that runs is stopped first.

        Args:
            program: which one.
            wait: whether to return only once it is ready.
        """
        self._components[program].restart()
        if wait:
            self._await(program)

    def pid(self, program: Program) -> int:
        """Return the process id of the supervisor, whose child the program is."""
        return self._components[program].pid

    def logs(self) -> str:
        """Return the ends of the logs."""
        return "\n".join(f"--- {c.name}\n{c.log_tail()}" for c in self._components.values())

    def _start(self, stack: ExitStack) -> None:
        wanted: list[Program] = ["keda-operator", "keda-adapter"]
        wanted += ["keda-webhooks"] if self._webhooks else []
        paths = {program: find(program) for program in wanted}
        self._plane.define("keda")
        self._folder.mkdir(parents=True)
        service_port, probe_port, self.metrics_port, self.port, webhooks_port = free_ports(5)
        arguments: dict[Program, list[str]] = {
            "keda-operator": self._operator_flags(service_port, probe_port),
            "keda-adapter": self._adapter_flags(service_port),
            "keda-webhooks": self._webhooks_flags(webhooks_port),
        }
        for program, path in paths.items():
            flags = [*arguments[program], *self._flags.get(program, ())]
            command = [*self._clean_environment(), str(path), *flags, "--zap-encoder=console"]
            component = Component(program, command, self._folder, _GRACE_S)
            stack.callback(component.end_stop)
            self._components[program] = component
        api = MetricsApi("keda-adapter", self.port, self._components["keda-adapter"])
        self._ready = {
            "keda-operator": lambda: is_listening(service_port),
            "keda-adapter": lambda: is_ready(api),
            "keda-webhooks": lambda: is_listening(webhooks_port),
        }
        for program in wanted:
            self._await(program)
        if self._webhooks:
            self._plane.apply(json.dumps(self._webhook_configuration(webhooks_port)))
        if self._registered:
            group_versions = [EXTERNAL_METRICS]
            stack.enter_context(
                aggregated_api(
                    self._plane,
                    group_versions,
                    self.port,
                    service=_SERVICE,
                    ca_bundle=self._plane.ca,
                )
            )

    def _operator_flags(self, service_port: int, probe_port: int) -> list[str]:
        trusted = self._folder / "trusted"
        trusted.mkdir()
        shutil.copy(self._plane.ca, trusted / "ca.crt")
        pair = self._plane.serving_certificate("127.0.0.1", "localhost")
        return [
            f"--metrics-bind-address=127.0.0.1:{self.metrics_port}",
            f"--health-probe-bind-address=127.0.0.1:{probe_port}",
            f"--metrics-service-bind-address=127.0.0.1:{service_port}",
            f"--cert-dir={self._certificates('operator', pair)}",
            f"--ca-dir={trusted}",
        ]

    def _adapter_flags(self, service_port: int) -> list[str]:
        client = self._plane.client_certificate("keda-adapter")
        serving = self._plane.serving_certificate(serving_name(_SERVICE))
        kubeconfig = self._plane.admin
        return [
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            "--port=0",  # its own metrics, which are not for loopback alone: any port
            f"--metrics-service-address=127.0.0.1:{service_port}",
            f"--cert-dir={self._certificates('adapter', client)}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            *(
                f"--{name}-kubeconfig={kubeconfig}"
                for name in ("lister", "authentication", "authorization")
            ),
        ]

    def _webhooks_flags(self, port: int) -> list[str]:
        pair = self._plane.serving_certificate("127.0.0.1")
        return [
            f"--port={port}",
            f"--cert-dir={self._certificates('webhooks', pair)}",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            "--cache-miss-to-direct-client=true",  # a workload that was made just now is found
        ]

    def _webhook_configuration(self, port: int) -> dict[str, Any]:
        bundle = base64.b64encode(self._plane.ca.read_bytes()).decode()
        webhooks = [
            {
                "name": f"v{kind}.kb.io",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}/validate-keda-sh-v1alpha1-{kind}",
                    "caBundle": bundle,
                },
                "rules": [
                    {
                        "apiGroups": ["keda.sh"],
                        "apiVersions": ["v1alpha1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [f"{kind}s"],
                    }
                ],
            }
            for kind in _VALIDATED
        ]
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "keda-admission"},
            "webhooks": webhooks,
        }

    def _certificates(self, name: str, pair: KeyPair) -> Path:
        """Return a folder with the files that both programs know each other by."""
        folder = self._folder / name
        folder.mkdir()
        shutil.copy(self._plane.ca, folder / "ca.crt")
        shutil.copy(pair.certificate, folder / "tls.crt")
        shutil.copy(pair.key, folder / "tls.key")
        return folder

    def _clean_environment(self) -> list[str]:
        """Return the beginning of a command without proxies and whatever else is set here."""
        return with_variables_alone(
            {
                "HOME": str(self._folder),
                "KUBECONFIG": str(self._plane.admin),
                "WATCH_NAMESPACE": "",
                "POD_NAMESPACE": _NAMESPACE,
                "KEDA_CLUSTER_OBJECT_NAMESPACE": _NAMESPACE,
                **self._environment,
            }
        )

    def _await(self, program: Program) -> None:
        self._components[program].wait_until(self._ready[program], _READY_S)
