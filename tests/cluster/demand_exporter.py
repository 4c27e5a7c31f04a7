"""Serves a demand to Prometheus until it is ended: `demand_exporter.py FILE PORT`.

The file has a line of Prometheus' text format for each series. It is read at each scrape.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FILE, PORT = Path(sys.argv[1]), int(sys.argv[2])


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = FILE.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Page).serve_forever()
