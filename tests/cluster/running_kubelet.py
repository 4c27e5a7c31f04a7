"""A kubelet for the installation's own pods: their containers run as processes of this machine.

Each pod has a network of its own, an address that all others reach, and the token of its service account.
Each container has the arguments, environment and volumes that its pod says, a root without anything else, no
capability where it drops them, and the probes that decide when it is ready. Other pods are only led through
their stages, as ever on simulated nodes; they are given GPUs of their node.

Known differences from a real one: an image is a program of this machine, named by its repository; NVIDIA's
runtime brings in the stand-in for NVML; the user is always the same one; limits of memory and network
policies are not enforced; a container that ends is not started again, but told by `faults`; once it has
started, it is not asked again whether it lives.
"""

import asyncio
import json
import shutil
import ssl
import sys
import traceback
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import aiohttp
import own_network
from service_addresses import API_SERVER, ServiceAddresses
from volumes import MissingVolumeError, Volumes, field

import gpuscale
from gpuscale.base.errors import GpuscaleError
from gpuscale.kube.simulated.kubelet import SimulatedKubelet, _address, _now
from gpuscale.kube.simulated.pod_status import Placed, creating, running
from gpuscale.testing.podresources import PodResources
from gpuscale_testing import Component

HERE = Path(__file__).parent
GPU = "nvidia.com/gpu"
KUBELET_SOCKET = "var/lib/kubelet/pod-resources/kubelet.sock"
PARTS = ("node-agent", "metrics-api", "prometheus")
SYNC_S = 1.0
"""Between two looks at what volumes are made of; the kubelet's is a minute."""
GRACE_S = 10.0


class Node:
    """What a node has beside its objects: a file system, GPUs, a driver, and who has which GPU."""

    def __init__(self, name, gpus, folder) -> None:
        self.root = folder / name
        self.gpus = [f"GPU-{name}-{number}" for number in range(gpus)]
        socket = self.root / KUBELET_SOCKET
        socket.parent.mkdir(parents=True)
        self.resources = PodResources(socket, self.gpus)
        self.load = self.root / "load"
        self.load.mkdir()

    @property
    def used(self):
        """Return the GPUs that pods have."""
        given = sorted(self.resources.allocated.items())
        return [gpu for _, gpus in given for gpu in gpus]

    def give(self, pod) -> None:
        """Give a pod the GPUs that its containers ask for."""
        free = [gpu for gpu in self.gpus if gpu not in self.used]
        for container in pod["spec"]["containers"]:
            wanted = int(container.get("resources", {}).get("limits", {}).get(GPU, 0))
            if wanted:
                key = pod["metadata"]["namespace"], pod["metadata"]["name"]
                self.resources.allocate(*key, *free[:wanted], container=container["name"])

    def work(self, gpus) -> None:
        """Keep these GPUs busy for the next two seconds, and no others."""
        (self.load / "next").write_text(" ".join(gpus))
        (self.load / "next").replace(self.load / "busy")


class RunningKubelet(SimulatedKubelet):
    """Kubelets that run the installation's own pods.

    Args:
        client: of someone who may do what kubelets do.
        times: of all other pods.
        plane: the control plane, for its address.
        nodes: by name.
        folder: for volumes, logs and roots; short, as it holds sockets.
        images: the program of each image, by its repository.
    """

    def __init__(self, client, times, plane, nodes, folder, images) -> None:
        super().__init__(client, times)
        self._nodes = nodes
        self._folder = folder
        self._images = images
        self._volumes = Volumes(client, folder / "volumes")
        self._hosts = folder / "hosts"
        self._services = ServiceAddresses(client, plane.port, self._hosts)
        self._pod_numbers = count(1)
        self.containers = {}
        """Component of each container by `pod/container`."""
        self.faults = []
        """What went wrong with containers; each is a fault of the product, or of this machine."""

    async def __aenter__(self):
        with ExitStack() as stack:
            for node in self._nodes.values():
                stack.enter_context(node.resources)
            await super().__aenter__()
            self._proxy = self._tasks.create_task(self._services.run(), name="services")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind, error, trace) -> None:
        self._proxy.cancel()
        await super().__aexit__(kind, error, trace)
        for component in self.containers.values():
            component.begin_stop()
        for component in self.containers.values():
            component.end_stop()
        self._stack.close()

    def logs(self):
        return "\n".join(f"--- {name}\n{each.log_tail()}" for name, each in self.containers.items())

    async def _lead(self, pod, host) -> None:
        node = self._nodes.get(pod["spec"]["nodeName"])
        labels = pod["metadata"].get("labels", {})
        is_ours = labels.get("app.kubernetes.io/name") == "gpuscale"
        if is_ours and labels.get("app.kubernetes.io/component") in PARTS:
            try:
                await self._run(pod, host, node)
            except Exception:  # noqa: BLE001 - whatever it is, the test tells of it
                self.faults.append(f"{pod['metadata']['name']}: {traceback.format_exc()}")
            return
        node.give(pod)
        await super()._lead(pod, host)

    async def _end(self, pod) -> None:
        metadata = pod["metadata"]
        prefix = f"{metadata['name']}/"
        for name in [name for name in self.containers if name.startswith(prefix)]:
            await asyncio.to_thread(self.containers.pop(name).end_stop)
        node = self._nodes.get(pod["spec"]["nodeName"])
        node.resources.free(metadata["namespace"], metadata["name"])
        await super()._end(pod)

    async def _run(self, pod, host, node) -> None:
        placed = Placed(_address(10, 64, next(self._numbers)), host, _now())
        await self._write(pod, creating(pod, placed, _now()))
        folders = await self._made_volumes(pod, node)
        network = f"p{next(self._pod_numbers)}"
        own_network.add_pod(network, placed.pod_ip)
        try:
            started = [
                self._start(pod, container, node, folders, network)
                for container in pod["spec"]["containers"]
            ]
            await self._write(pod, running(pod, placed, _now(), ready=False))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_volumes(pod, node))
                for each in started:
                    group.create_task(self._see_end(each))
                group.create_task(self._probe(pod, placed))
        finally:
            # Its programs go on until they are stopped; only the name is taken away.
            own_network.remove_pod(network)

    async def _made_volumes(self, pod, node):
        while True:
            try:
                return await self._volumes.make(pod, node.root)
            except (MissingVolumeError, GpuscaleError):
                await asyncio.sleep(SYNC_S)

    async def _keep_volumes(self, pod, node) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            await self._made_volumes(pod, node)

    async def _see_end(self, component) -> None:
        """Notice a container that ends by itself."""
        while component.exit_code is None:  # noqa: ASYNC110 - nobody tells of a process's end
            await asyncio.sleep(0.2)
        if component in self.containers.values():
            code, said = component.exit_code, component.log_tail()
            self.faults.append(f"{component.name} ended with {code}:\n{said}")

    # A container

    def _start(self, pod, container, node, folders, network):
        name = f"{pod['metadata']['name']}/{container['name']}"
        folder = self._folder / "containers" / name
        (folder / "root").mkdir(parents=True)
        spec = folder / "spec.json"
        spec.write_text(json.dumps(self._spec(pod, container, node, folders, folder)))
        words = [*own_network.in_pod(network), sys.executable, str(HERE / "container_root.py")]
        component = Component(container["name"], [*words, str(spec)], folder, GRACE_S)
        self.containers[name] = component
        return component

    def _spec(self, pod, container, node, folders, folder):
        environment = _environment(pod, container)
        context = container.get("securityContext", {})
        return {
            "root": str(folder / "root"),
            "binds": [*self._image_binds(node), *_mounts(container, folders)],
            "read_only_root": context.get("readOnlyRootFilesystem", False),
            "drops_capabilities": "ALL" in context.get("capabilities", {}).get("drop", ()),
            "command": [
                *self._entrypoint(container, environment, node),
                *container.get("args", ()),
            ],
            "env": environment,
        }

    def _entrypoint(self, container, environment, node):
        if "command" in container:
            return container["command"]
        repository = container["image"].rpartition(":")[0]
        if environment.get("NVIDIA_VISIBLE_DEVICES") != "all":
            return self._images[repository]
        # The stand-in becomes the same program.
        return [sys.executable, str(HERE / "loaded_agent.py"), "/load/busy", ",".join(node.gpus)]

    def _image_binds(self, node):
        source = Path(gpuscale.__file__).parents[1]
        places = {Path("/usr"), Path(sys.base_prefix), Path(sys.prefix), source, HERE}
        nested = {each for each in places if any(each.is_relative_to(p) for p in places - {each})}
        files = [Path("/etc/nsswitch.conf"), Path("/etc/ld.so.cache")]
        found = [(str(each), str(each), False) for each in sorted(places - nested)]
        found += [(str(each), str(each), False) for each in files if each.exists()]
        return [
            *found,
            (str(self._hosts), "/etc/hosts", False),
            (str(node.load), "/load", False),
        ]

    # Probes

    async def _probe(self, pod, placed) -> None:
        """Write when a pod is ready, as its containers' probes say."""
        connector = aiohttp.TCPConnector(ssl=_unverified(), force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            for container in pod["spec"]["containers"]:
                for kind in ("startupProbe", "livenessProbe"):
                    await _until_well(session, container, kind, placed.pod_ip)
            was_ready, failures = False, 0
            while True:
                (container,) = pod["spec"]["containers"]
                is_well = await _is_well(session, container, "readinessProbe", placed.pod_ip)
                failures = 0 if is_well else failures + 1
                limit = container["readinessProbe"].get("failureThreshold", 3)
                is_ready = is_well or (was_ready and failures < limit)
                if is_ready != was_ready:
                    await self._write(pod, running(pod, placed, _now(), ready=is_ready))
                was_ready = is_ready
                await asyncio.sleep(container["readinessProbe"].get("periodSeconds", 10))


def _unverified():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _until_well(session, container, kind, address) -> None:
    while True:
        if await _is_well(session, container, kind, address):
            return
        await asyncio.sleep(container[kind].get("periodSeconds", 10))


async def _is_well(session, container, kind, address):
    probe = container[kind]
    get = probe["httpGet"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    url = f"{get.get('scheme', 'HTTP').lower()}://{address}:{ports[get['port']]}{get['path']}"
    limit = aiohttp.ClientTimeout(total=probe.get("timeoutSeconds", 1))
    try:
        async with session.get(url, timeout=limit) as answer:
            return answer.status < 400
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


def _environment(pod, container):
    found = {
        # Of the image.
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "KUBERNETES_SERVICE_HOST": API_SERVER[0],
        "KUBERNETES_SERVICE_PORT": str(API_SERVER[1]),
    }
    for each in container.get("env", ()):
        source = each.get("valueFrom")
        found[each["name"]] = (
            each.get("value", "") if source is None else field(pod, source["fieldRef"])
        )
    return found


def _mounts(container, folders):
    return [
        (str(folders[mount["name"]]), mount["mountPath"], mount.get("readOnly", False))
        for mount in container.get("volumeMounts", ())
    ]


GPUSCALE = Path(sys.executable).parent / "gpuscale"


def images(gpuscale):
    """Return the program of each image by its repository; that of ours is named by who installs it."""
    prometheus = [HERE / "prometheus_with_pods.py", shutil.which("prometheus")]
    return {
        gpuscale: [str(GPUSCALE)],
        "quay.io/prometheus/prometheus": [sys.executable, *map(str, prometheus)],
    }
