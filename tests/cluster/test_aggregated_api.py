"""An API server on localhost is registered, served through the control plane, and gone at the end."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpuscale.base.errors import UpstreamError
from gpuscale_testing import aggregated_api, wait_until
from gpuscale_testing.addresses import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

GROUP_VERSION = "demo.gpuscale.dev/v1"
RESOURCES = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION}


class Demo(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_ours = self.path.startswith(f"/apis/{GROUP_VERSION}")
        body = json.dumps({**RESOURCES, "resources": []} if is_ours else {}).encode()
        self.send_response(200 if is_ours else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def port(plane):
    """Serve the demo group with a certificate that is for another name."""
    pair = plane.serving_certificate("elsewhere.example")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    with ThreadingHTTPServer(("localhost", 0), Demo) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_any_certificate_is_taken_without_a_bundle_and_the_group_goes_with_the_registration(
    plane, port
) -> None:
    with aggregated_api(plane, [GROUP_VERSION], port):
        told = json.loads(plane.kubectl("get", "--raw", f"/apis/{GROUP_VERSION}"))
    assert told["groupVersion"] == GROUP_VERSION
    wait_until(lambda: GROUP_VERSION not in plane.kubectl("api-versions"), "the group to be gone")


def test_a_certificate_for_another_name_is_refused_with_a_bundle(plane, port) -> None:
    with (
        pytest.raises(UpstreamError, match="timed out waiting for the condition"),
        aggregated_api(plane, [GROUP_VERSION], port, ca_bundle=plane.ca, timeout_s=2),
    ):
        pass


def test_a_server_that_is_not_there_never_becomes_available(plane) -> None:
    (unused,) = free_ports(1)
    with (
        pytest.raises(UpstreamError, match="timed out waiting for the condition"),
        aggregated_api(plane, [GROUP_VERSION], unused, timeout_s=2),
    ):
        pass
