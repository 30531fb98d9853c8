"""A TCP proxy whose connections can be broken, as by a network failure."""

import contextlib
import socket
import threading
from typing import Any


class TcpProxy:
    """Forwards connections on `port` to another port of this machine."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Break all connections and return their number."""
        with self._lock:
            broken, self._open = self._open, set()
        for each in broken:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return len(broken) // 2

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        with self._lock:
            self._open |= {client, broker}
        for pair in ((client, broker), (broker, client)):
            threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: Any, sink: Any) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with self._lock:
            self._open -= {source, sink}
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
