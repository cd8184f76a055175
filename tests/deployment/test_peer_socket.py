"""Messages between robots by UDP: only those of peers, and one line for wrong addresses."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from equiflock._runtime.checks import InputError
from equiflock.deployment.peer_socket import PeerSocket, parse_address
from mavlink_vehicles import find_ports

HERE = "127.0.0.1"


@pytest.fixture
def pair() -> Iterator[tuple[PeerSocket, PeerSocket]]:
    a, b = ((HERE, port) for port in find_ports(2))
    with PeerSocket(a, [b]) as one, PeerSocket(b, [a]) as other:
        yield one, other


def receive(one: PeerSocket) -> list[bytes]:
    select.select([one], [], [], 5.0)
    return one.receive()


def test_peers_receive_each_other(pair: tuple[PeerSocket, PeerSocket]) -> None:
    one, other = pair
    one.send(b"message")
    assert receive(other) == [b"message"]
    assert other.receive() == [] == one.receive()


def test_messages_of_others_than_peers_are_dropped_and_counted(pair: tuple[PeerSocket, PeerSocket]) -> None:
    one, other = pair
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"forged", one.peers[0])
    assert receive(other) == [] and other.strangers == 1


def test_a_peer_that_does_not_listen_is_no_error() -> None:
    a, b = ((HERE, port) for port in find_ports(2))
    with PeerSocket(a, [b]) as one:
        for _ in range(3):
            one.send(b"message")
            assert one.receive() == []


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:0", "127.0.0.1:70000", ":14600", "host:port"])
def test_a_wrong_address_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match="an address must be host:port"):
        parse_address(text)


@pytest.mark.parametrize("host", ["robot..local", "x" * 64])
def test_a_host_that_is_no_name_is_one_line(host: str) -> None:
    with pytest.raises(InputError, match="is not a name: its labels must have 1 to 63 characters"):
        parse_address(f"{host}:14600")


def test_an_address_in_use_or_of_the_robot_itself_is_an_error(pair: tuple[PeerSocket, PeerSocket]) -> None:
    own, other = pair[1].peers[0], pair[0].peers[0]
    with pytest.raises(InputError, match="cannot receive messages at"):
        PeerSocket(own, [other])
    with pytest.raises(InputError, match="is this robot's own address"):
        PeerSocket(own, [own])
