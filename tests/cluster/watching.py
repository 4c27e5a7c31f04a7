"""Looking at a cluster again and again, in a thread, whatever happens to it."""

import json
import threading
from contextlib import closing
from http.client import HTTPSConnection


class Watching:
    """Looks while the `with` lasts. What `look` returns is kept; it must not raise.

    Args:
        plane: the control plane, looked at as its admin.
        look: asked for a sight again and again, with a connection to the API server.
        every_s: from the end of a look to the next one.
    """

    def __init__(self, plane, look, every_s=0.25) -> None:
        self.seen = []
        self._plane = plane
        self._look = look
        self._every_s = every_s
        self._context = plane.ssl_context()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join(30)

    def since(self, at):
        return [seen for seen in tuple(self.seen) if seen.at >= at]

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            connection = HTTPSConnection(
                "127.0.0.1", self._plane.port, timeout=3.0, context=self._context
            )
            with closing(connection):
                self.seen.append(self._look(connection))


def ask(connection, path):
    """Return code and document of an answer; a text that is no JSON stands in `message`."""
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    try:
        return response.status, json.loads(body)
    except ValueError:
        return response.status, {"message": body.decode(errors="replace")}
