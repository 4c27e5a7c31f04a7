"""Debian's Prometheus as a container's program: `prometheus_with_pods.py PROGRAM FLAGS`.

Debian builds it without service discovery of Kubernetes, and in a release that does not reload its
configuration by itself. Both are done here, for the flags and files that the container has: pods are listed
with the service account's token, as targets with the labels that a relabelling finds, and whoever may not
list them finds none.

Source: prometheus discovery/kubernetes (pod.go, labels), discovery/manager.go (five seconds between updates).
"""

import json
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from os import environ
from pathlib import Path

import yaml

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
OWN = Path("/prometheus/pods")
CONFIG = "--config.file="
LOOK_S, DISCOVER_S = 1.0, 5.0
META = "__meta_kubernetes_"


def pods(namespace):
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ["KUBERNETES_SERVICE_PORT"]
    request = urllib.request.Request(
        f"https://{host}:{port}/api/v1/namespaces/{namespace}/pods",
        headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"},
    )
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        return json.load(answer)["items"]


def targets(pod):
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    if "podIP" not in status:
        return
    labels = {
        f"{META}namespace": metadata["namespace"],
        f"{META}pod_name": metadata["name"],
        f"{META}pod_ip": status["podIP"],
        f"{META}pod_node_name": spec.get("nodeName", ""),
        f"{META}pod_phase": status["phase"],
    }
    for kind in ("label", "annotation"):
        for key, value in metadata.get(f"{kind}s", {}).items():
            name = re.sub(r"[^a-zA-Z0-9_]", "_", key)
            labels |= {f"{META}pod_{kind}_{name}": value, f"{META}pod_{kind}present_{name}": "true"}
    for container in spec["containers"]:
        for port in container.get("ports", ()):
            of_port = {
                f"{META}pod_container_name": container["name"],
                f"{META}pod_container_image": container["image"],
                f"{META}pod_container_port_name": port.get("name", ""),
                f"{META}pod_container_port_number": str(port["containerPort"]),
                f"{META}pod_container_port_protocol": port.get("protocol", "TCP"),
            }
            address = f"{status['podIP']}:{port['containerPort']}"
            yield {"targets": [address], "labels": {**labels, **of_port}}


class Discovery:
    """The scrape jobs of a configuration, with files of targets for pods."""

    def __init__(self, path) -> None:
        self._path = path
        self._namespaces = {}
        self._read = None

    def files(self):
        """Return what is reloaded when it changes."""
        text = self._path.read_text()
        folders = [Path(each).parent for each in yaml.safe_load(text).get("rule_files", ())]
        rules = [path.read_text() for each in folders for path in sorted(each.glob("*.yaml"))]
        return text, rules

    def has_changed(self):
        return self.files() != self._read

    def translate(self) -> None:
        self._read = self.files()
        found = yaml.safe_load(self._read[0])
        self._namespaces = {}
        for job in found.get("scrape_configs", ()):
            for sd in job.pop("kubernetes_sd_configs", ()):
                assert sd["role"] == "pod", sd
                file = str(OWN / f"{job['job_name']}.json")
                self._namespaces[file] = sd["namespaces"]["names"]
                job["file_sd_configs"] = [{"files": [file], "refresh_interval": "1s"}]
        (OWN / "prometheus.yml").write_text(yaml.safe_dump(found))

    def discover(self) -> None:
        for file, namespaces in self._namespaces.items():
            try:
                found = [
                    target for name in namespaces for pod in pods(name) for target in targets(pod)
                ]
            except OSError as error:
                sys.stderr.write(f"pods can't be listed: {error}\n")
                continue
            Path(f"{file}.next").write_text(json.dumps(found))
            Path(f"{file}.next").replace(file)


def main() -> None:
    program, *flags = sys.argv[1:]
    (path,) = (Path(each.removeprefix(CONFIG)) for each in flags if each.startswith(CONFIG))
    OWN.mkdir(exist_ok=True)
    discovery = Discovery(path)
    discovery.translate()
    discovery.discover()
    own = f"{CONFIG}{OWN / 'prometheus.yml'}"
    words = [own if each.startswith(CONFIG) else each for each in flags]
    # It goes with this process, whatever ends it.
    process = subprocess.Popen(["setpriv", "--pdeathsig=KILL", program, *words])
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    discovered = time.monotonic()
    while process.poll() is None:
        time.sleep(LOOK_S)
        if discovery.has_changed():
            discovery.translate()
            process.send_signal(signal.SIGHUP)
        if time.monotonic() - discovered >= DISCOVER_S:
            discovery.discover()
            discovered = time.monotonic()
    sys.exit(process.returncode)


if __name__ == "__main__":
    main()
