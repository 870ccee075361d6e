"""HELLO, against a server that behaves in every way."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from lab.errors import LabError
from lab.rpc import hello, wait_hello

VERSION = struct.pack("<Q", 4) + bytes((6, 0, 1, 0))
Serve = Callable[[socket.socket], None]


class Server:
    """Serves connections one after another, each as `serve` says, and keeps what they asked."""

    def __init__(self) -> None:
        self.serve: Serve = lambda sock: sock.sendall(VERSION)
        self.asked: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self.asked.append(connection.recv(64))
                self.serve(connection)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def _in_pieces(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in VERSION:
        sock.sendall(bytes((byte,)))
        time.sleep(0.002)


@pytest.mark.parametrize("serve", [lambda sock: sock.sendall(VERSION), _in_pieces])
def test_a_worker_answers_with_its_version(server: Server, serve: Serve) -> None:
    server.serve = serve
    assert hello("127.0.0.1", server.port) == (6, 0, 1)
    assert server.asked == [bytes((14,)) + struct.pack("<Q", 24) + bytes(24)]


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        (lambda sock: None, "connection closed during HELLO"),
        (lambda sock: sock.sendall(VERSION[:4]), "connection closed during HELLO"),
        (lambda sock: sock.sendall(VERSION[:-1]), "connection closed during HELLO"),
        (lambda sock: sock.sendall(struct.pack("<Q", 2) + b"ab"), "claims 2 bytes"),
        (lambda sock: sock.sendall(struct.pack("<Q", 1 << 60)), f"claims {1 << 60} bytes"),
        (lambda sock: sock.sendall(b"HTTP/1.1 400 Bad Request\r\n"), "no RPC server"),
        (lambda sock: time.sleep(0.3), "timed out"),
    ],
    ids=["closed", "half a size", "half an answer", "too small", "absurd", "http", "silent"],
)
def test_what_is_no_worker_is_an_error(server: Server, serve: Serve, message: str) -> None:
    server.serve = serve
    with pytest.raises(OSError, match=message):
        hello("127.0.0.1", server.port, timeout=0.1)


def test_nobody_there_is_an_error(server: Server) -> None:
    server.close()
    with pytest.raises(OSError, match=r"refused|timed out"):
        hello("127.0.0.1", _free_port(), timeout=0.2)


def test_waiting_ends_with_the_first_answer(server: Server) -> None:
    def serve(sock: socket.socket) -> None:
        if len(server.asked) == 3:
            sock.sendall(VERSION)

    server.serve = serve
    assert wait_hello("127.0.0.1", server.port, 5) == (6, 0, 1)
    assert len(server.asked) == 3


def test_waiting_in_vain_is_the_labs_failure_and_says_where(server: Server) -> None:
    server.serve = lambda sock: None
    with pytest.raises(LabError, match=r"no answer to HELLO within 0\.1 s: connection") as caught:
        wait_hello("127.0.0.1", server.port, 0.1)
    assert str(caught.value).startswith(f"127.0.0.1:{server.port}: ")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return int(unused.getsockname()[1])
