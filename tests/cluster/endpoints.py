"""An address whose answers take work, such as a model server's."""

import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def endpoint(status, work):
    """Serve an address that does some work for each answer."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            work()
            self.send_response(status)
            self.send_header("Content-Length", "0")
            with suppress(OSError):
                self.end_headers()

        def log_message(self, *_) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/infer"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
