"""The first message of llama.cpp's RPC protocol, for readiness: HELLO.

Request: command byte 14, payload size (u64, little endian), payload. Response: payload size (u64),
payload whose first three bytes are the protocol version. The number 14 is fixed by upstream
(`ggml-rpc.cpp`, b9951 to b11434); the payload is 24 bytes of connection capabilities, and all zeros
ask for plain TCP.
"""

import socket
import struct
import time

from lab.errors import LabError

HELLO = 14
CAPABILITIES = bytes(24)


def hello(host: str, port: int, timeout: float = 2.0) -> tuple[int, int, int]:
    """The protocol version that a worker answers, e.g. (6, 0, 0). One attempt.

    Raises:
        OSError: nothing answers, or what answers is no RPC server.
    """
    with socket.create_connection((host, port), timeout=timeout) as sock:
        sock.sendall(struct.pack("<BQ", HELLO, len(CAPABILITIES)) + CAPABILITIES)
        (size,) = struct.unpack("<Q", _receive(sock, 8))
        if not 3 <= size <= 1024:
            raise OSError(f"no RPC server: its answer to HELLO claims {size} bytes")
        major, minor, patch = _receive(sock, size)[:3]
        return major, minor, patch


def wait_hello(host: str, port: int, seconds: float) -> tuple[int, int, int]:
    """Ask until a worker answers. Raises `LabError` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return hello(host, port)
        except OSError as error:
            if time.monotonic() > deadline:
                raise LabError(
                    f"no answer to HELLO within {seconds:g} s: {error}", where=f"{host}:{port}"
                ) from None
            time.sleep(0.02)


def _receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise OSError("connection closed during HELLO")
        data += chunk
    return data
