"""The name of a headless Service: a DNS server that answers one name with the addresses of its pods.

KEDA's gRPC client takes `dns://SERVER/NAME:PORT` and connects to all addresses.
"""

import socket
import struct
import threading

_HEADER = struct.Struct("!6H")
_ANSWER = struct.Struct("!HHHIH")
_ANSWERED = 0x8580
"""Flags of an answer with authority, without error."""
_A, _IN, _TTL_S = 1, 1, 5
_NAME_OF_THE_QUESTION = 0xC00C


class HeadlessService:
    """Answers for any name with the same IPv4 addresses, for as long as the `with` lasts."""

    def __init__(self, *addresses) -> None:
        self.addresses = list(addresses)
        """May be changed while it runs."""
        self._socket = socket.socket(type=socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, name="dns", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as end:
            end.sendto(b"", self._socket.getsockname())
        self._thread.join(10)
        self._socket.close()

    def target(self, name, port):
        """Return what a gRPC client finds this name and port by."""
        return f"dns://127.0.0.1:{self._socket.getsockname()[1]}/{name}:{port}"

    def _run(self) -> None:
        while True:
            question, sender = self._socket.recvfrom(4096)
            if not question:
                return
            self._socket.sendto(self._answer(question), sender)

    def _answer(self, question):
        number = _HEADER.unpack_from(question)[0]
        end = question.index(b"\0", _HEADER.size) + 5
        kind = int.from_bytes(question[end - 4 : end - 2], "big")
        addresses = tuple(self.addresses) if kind == _A else ()
        rows = (
            _ANSWER.pack(_NAME_OF_THE_QUESTION, _A, _IN, _TTL_S, 4) + socket.inet_aton(address)
            for address in addresses
        )
        header = _HEADER.pack(number, _ANSWERED, 1, len(addresses), 0, 0)
        return header + question[_HEADER.size : end] + b"".join(rows)
