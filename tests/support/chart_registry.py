"""An OCI registry on this machine: the part of the distribution API that `helm push` and `helm pull` use."""

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Registry:
    """What was pushed: content by digest, and digests and media types of manifests by tag."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.content: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, str]] = {}

    def put(self, content: bytes) -> str:
        """Keep content; return its digest."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.content[digest] = content
        return digest


@contextlib.contextmanager
def chart_registry() -> Iterator[Registry]:
    """Serve an empty registry on a free port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    registry = server.registry = Registry(server.server_address[1])  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    @property
    def _registry(self) -> Registry:
        registry: Registry = self.server.registry  # type: ignore[attr-defined]
        return registry

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        name = path.rpartition("/")[2]
        digest, media_type = self._registry.manifests.get(name, (name, "application/octet-stream"))
        content = self._registry.content.get(digest)
        if path == "/v2/":
            self._answer(200)
        elif content is None:
            self._answer(404)
        else:
            self._answer(200, content, Content_Type=media_type, Docker_Content_Digest=digest)

    def do_POST(self) -> None:
        self._body()
        self._answer(202, Location=f"{self.path.rstrip('/')}/upload")

    def do_PUT(self) -> None:
        split = urlsplit(self.path)
        digest = self._registry.put(self._body())
        wanted = parse_qs(split.query).get("digest", [digest])
        if wanted != [digest]:
            self._answer(400)
            return
        if "/manifests/" in split.path:
            described = (digest, self.headers["Content-Type"])
            self._registry.manifests[split.path.rpartition("/")[2]] = described
            self._registry.manifests[digest] = described
        self._answer(201, Location=split.path, Docker_Content_Digest=digest)
