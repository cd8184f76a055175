"""Messages between robots by UDP: each robot sends to the addresses of all others, and receives from nobody else."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from equiflock._runtime.checks import InputError, shorten_repr

Address: TypeAlias = tuple[str, int]
"""IPv4 address and port."""
MAX_BYTES = 4096
"""Longest datagram that is read; the agent refuses whatever has not the length of its messages."""
MAX_DATAGRAMS = 256
"""Most datagrams that are read at once, so that a flood does not keep the robot from its next step."""


def parse_address(text: str) -> Address:
    """Return the address of host:port, with the host's name resolved."""
    host, colon, port = text.strip().rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 2**16):
        raise InputError(f"an address must be host:port, such as 192.168.1.7:14600; got {shorten_repr(text)}")
    try:
        return socket.gethostbyname(host), int(port)
    except OSError as error:
        raise InputError(f"host {host!r} is unknown: {error.strerror}") from None
    except UnicodeError:  # an empty label, or one of more than 63 characters
        raise InputError(f"host {shorten_repr(host)} is not a name: its labels must have 1 to 63 characters") from None


class PeerSocket:
    """A UDP socket at `own` for the messages of `peers`; those of other addresses are dropped and counted."""

    def __init__(self, own: Address, peers: Sequence[Address]) -> None:
        self.peers, self._known = tuple(peers), frozenset(peers)
        if own in self._known:
            raise InputError(f"peers must be the other robots, but {own[0]}:{own[1]} is this robot's own address")
        self.strangers = 0
        """Datagrams from other addresses than those of the peers."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            self._socket.bind(own)
        except OSError as error:
            self._socket.close()
            raise InputError(f"cannot receive messages at {own[0]}:{own[1]}: {error.strerror}") from None

    def __enter__(self) -> PeerSocket:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """Return the file descriptor, for `select`."""
        return self._socket.fileno()

    def send(self, message: bytes) -> None:
        """Send a message to all peers. What the network does not take now is lost, like a message of any radio."""
        for peer in self.peers:
            with suppress(OSError):
                self._socket.sendto(message, peer)

    def receive(self) -> list[bytes]:
        """Return the messages of peers that have arrived."""
        messages = []
        for _ in range(MAX_DATAGRAMS):
            try:
                message, sender = self._socket.recvfrom(MAX_BYTES)
            except BlockingIOError:
                break
            except OSError:  # a peer that does not listen yet
                continue
            if sender in self._known:
                messages.append(message)
            else:
                self.strangers += 1
        return messages
