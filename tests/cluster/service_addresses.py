"""Services reached at their addresses, as kube-proxy and a cluster's DNS see to it on a node.

A Service takes connections while one of its endpoints is ready, and refuses them otherwise. Names stand in a
hosts file, and not in a DNS.
"""

import asyncio
from contextlib import suppress
from functools import partial
from itertools import count

import own_network

from gpuscale.base.clock import WallClock
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.kube.informers.reflector import Reflector

API_SERVER = ("10.0.0.1", 443)
"""The Service `kubernetes`; no endpoints are kept for it here."""
_CLOSE_S = 1.0
_SERVICE_NAME = "kubernetes.io/service-name"


class ServiceAddresses:
    """Listens at the addresses of all Services.

    Args:
        client: of someone who may list Services and EndpointSlices.
        api_port: of the API server on loopback.
        hosts: the file that the names are kept in.
    """

    def __init__(self, client, api_port, hosts) -> None:
        self._hosts = hosts
        self._changed = asyncio.Event()
        self._turns = count()
        self._listening = {}
        self._connections = set()
        self._backends = {API_SERVER: [("127.0.0.1", api_port)]}
        self._always = dict(self._backends)
        self._services = self._copy(client, "/api/v1/services")
        self._slices = self._copy(client, "/apis/discovery.k8s.io/v1/endpointslices")
        self._write_hosts()

    def _copy(self, client, path):
        settings = KubeSettings(retry_s=0.2, max_retry_s=2.0)
        return Reflector(client, settings, path, {}, lambda it: it, WallClock(), self._changed.set)

    async def run(self) -> None:
        """Keep up with the cluster until this is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._services.run())
                group.create_task(self._slices.run())
                group.create_task(self._follow())
        finally:
            for server in self._listening.values():
                server.close()
            for each in self._connections:
                each.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            self._backends = {**self._always, **self._wanted()}
            self._write_hosts()
            for address in self._listening.keys() - self._backends.keys():
                self._listening.pop(address).close()
            for address in self._backends.keys() - self._listening.keys():
                own_network.add_service_address(address[0])
                self._listening[address] = await asyncio.start_server(
                    partial(self._pass_on, address), *address
                )
            await self._changed.wait()
            self._changed.clear()

    def _wanted(self):
        """Return the ready endpoints of each address; addresses without one are left out."""
        found = {}
        for service in self._services.items.values():
            for port in service["spec"].get("ports", ()):
                ends = self._ends(service, port.get("name", ""))
                if _address(service) and ends:
                    found[_address(service), port["port"]] = ends
        return found

    def _ends(self, service, port_name):
        metadata = service["metadata"]
        return [
            (address, port["port"])
            for each in self._slices.items.values()
            if each["metadata"]["namespace"] == metadata["namespace"]
            and each["metadata"].get("labels", {}).get(_SERVICE_NAME) == metadata["name"]
            for port in each.get("ports") or ()
            if port.get("name", "") == port_name
            for endpoint in each.get("endpoints") or ()
            if endpoint.get("conditions", {}).get("ready")
            for address in endpoint["addresses"]
        ]

    def _write_hosts(self) -> None:
        lines = ["127.0.0.1 localhost\n"]
        for service in self._services.items.values():
            if _address(service):
                name = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
                lines.append(f"{_address(service)} {name} {name}.cluster.local\n")
        # In place: containers have mounted this very file.
        self._hosts.write_text("".join(lines))

    async def _pass_on(self, address, *front) -> None:
        """Carry bytes both ways between who connected and one of the endpoints."""
        task = asyncio.current_task()
        self._connections.add(task)
        try:
            ends = self._backends[address]
            back = await asyncio.open_connection(*ends[next(self._turns) % len(ends)])
            try:
                await asyncio.gather(_copy_bytes(front, back), _copy_bytes(back, front))
            finally:
                await _close(back)
        except (OSError, KeyError, asyncio.CancelledError):
            pass  # Who connected sees it closed.
        finally:
            await _close(front)
            self._connections.discard(task)


async def _copy_bytes(from_end, to_end) -> None:
    reader, writer = from_end[0], to_end[1]
    with suppress(OSError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()


async def _close(end) -> None:
    """Let what was written arrive, and wait no longer for an end that reads nothing any more."""
    with suppress(OSError, asyncio.CancelledError):
        end[1].close()
        async with asyncio.timeout(_CLOSE_S):
            await end[1].wait_closed()
    end[1].transport.abort()


def _address(service):
    address = service["spec"].get("clusterIP", "")
    return "" if address == "None" else address
