"""A broker that is just coming up: it knows of no broker, itself included, soon after it knew of one.

with YoungBroker(knowing=2) as address:  # it answers two questions well
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

API_VERSIONS, METADATA = 18, 3
SPOKEN = ((API_VERSIONS, 0, 3), (METADATA, 0, 8))
NOBODY = -1


@contextmanager
def young_broker(knowing: int) -> Iterator[str]:
    """Gives its address; it knows itself in so many answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        left = iter(range(knowing))

        def serve(connection: socket.socket) -> None:
            with connection, suppress(EOFError, OSError):
                while True:
                    asked = _read(connection, *struct.unpack(">i", _read(connection, 4)))
                    api, _, number, client = struct.unpack(">hhih", asked[:10])
                    if api == API_VERSIONS:
                        answer = _versions()
                    else:
                        topics = _names(asked[10 + client :])
                        answer = _metadata(port, topics, known=next(left, None) is not None)
                    connection.sendall(struct.pack(">ii", 4 + len(answer), number) + answer)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{port}"
        server.shutdown(socket.SHUT_RDWR)


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (more := connection.recv(size - len(found))):
            raise EOFError
        found += more
    return found


def _versions() -> bytes:
    spoken = b"".join(struct.pack(">hhhb", *each, 0) for each in SPOKEN)
    return struct.pack(">hb", 0, len(SPOKEN) + 1) + spoken + struct.pack(">ib", 0, 0)


def _names(asked: bytes) -> list[bytes]:
    """Those that a question for metadata is about; it begins with their number, -1 for all that there are."""
    found, rest = [], asked[4:]
    for _ in range(*struct.unpack(">i", asked[:4])):
        end = 2 + struct.unpack(">h", rest[:2])[0]
        found.append(rest[2:end])
        rest = rest[end:]
    return found


def _metadata(port: int, topics: list[bytes], *, known: bool) -> bytes:
    """Each topic is unknown to it, which it says."""
    itself = [struct.pack(">i", 1) + _text(b"127.0.0.1") + struct.pack(">ih", port, -1)] if known else []
    unknown = [struct.pack(">h", 3) + _text(each) + struct.pack(">bii", 0, 0, -(2**31)) for each in topics]
    controller = struct.pack(">i", 1 if known else NOBODY)
    return (
        struct.pack(">i", 0)
        + _list(itself)
        + _text(b"young")
        + controller
        + _list(unknown)
        + struct.pack(">i", -(2**31))
    )


def _text(said: bytes) -> bytes:
    return struct.pack(">h", len(said)) + said


def _list(parts: list[bytes]) -> bytes:
    return struct.pack(">i", len(parts)) + b"".join(parts)
