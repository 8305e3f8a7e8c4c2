"""What a peer raises on purpose. What the network does (loss, silence, dead peers) comes as events, not as errors."""

from __future__ import annotations


class PeerError(Exception):
    """Base of every error of `peer`: a sentence that says what is wrong and what to do."""


class StreamUnavailable(PeerError):
    """No root of the stream could be found or reached in the time given."""


class FeedError(PeerError):
    """A root's source can't be read or brings something that is not a packet."""


class NotSynchronised(FeedError):
    """A root could not find out which numbers its packets have; it must not serve."""


class WrongOwner(PeerError):
    """The stream belongs to somebody else: the roots in the directory are vouched for by another key."""


class SeveralOwners(WrongOwner):
    """Roots of several owners serve an open stream, and none of them was chosen yet: see `owner_id`."""

    def __init__(self, sentence: str, owners: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.owners = owners
        """Their fingerprints, as `owner_id` takes them."""


class PeerClosed(PeerError, RuntimeError):
    """This peer has left the mesh, or is leaving it: nothing can be sent or asked for any more."""


def has_left(stream: str) -> PeerClosed:
    """The same sentence under trio, in a thread and in a desktop program."""
    return PeerClosed(f"this peer of {stream} has left: join again")


class NotXml(PeerError, ValueError):
    """What was to be published is not an XML document, and the stream was not declared raw."""


class QueryNotCarried(PeerError):
    """A router's own client wants more than the router was told to carry."""


def leaves(error: BaseException) -> list[BaseException]:
    """The errors inside groups: nurseries wrap what happens in them."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def plain(error: BaseException) -> BaseException:
    """The one error inside groups; the group itself when there are several."""
    inside = leaves(error)
    return inside[0] if len(inside) == 1 else error


class Overrun(PeerError):
    """This program did not take what came for it, so its peer gave up its parents. `rejoin` goes on."""
