"""What comes on an open link, made sure of: that the other end sent it, from where it is, and that it is whole."""

from __future__ import annotations

from dcp import wire
from dcp.errors import MalformedDatagram
from dcp.links.address import SocketAddress, is_same
from dcp.links.link import Link
from dcp.links.secrecy import OVERHEAD, is_encrypted


def link_id_of(data: bytes) -> int:
    """The link that a packet says it belongs to; 0, which no link has, if it can't say."""
    if is_encrypted(data):
        return int.from_bytes(data[1:5], "big")
    return 0 if len(data) < wire.BODY_AT or data[1] & wire.OPEN else int.from_bytes(data[12:16], "big")


def bound_id_untrusted(data: bytes) -> int:
    """The same, for what is as long as a packet must be: a reset in answer to it is not longer."""
    if is_encrypted(data) and len(data) < OVERHEAD:
        raise MalformedDatagram("short", f"{len(data)} bytes")
    return link_id_of(data)


def opened_untrusted(link: Link, data: bytes, address: SocketAddress) -> bytes:
    """The packet, readable, in the layout of `wire`."""
    if link.cipher_in is None:
        if is_encrypted(data) or not wire.seal_is_valid(link.seal_in, data):
            raise MalformedDatagram("seal")
        check_address(link, address)
        return data
    if not is_encrypted(data):
        raise MalformedDatagram("cleartext", "on an encrypted link")
    check_address(link, address)  # first: what a stranger repeats must not take the place of the original
    return link.cipher_in.open_untrusted(data)


def check_address(link: Link, address: SocketAddress) -> None:
    if link.address != address and not is_same(link.address, address):
        raise MalformedDatagram("address")
