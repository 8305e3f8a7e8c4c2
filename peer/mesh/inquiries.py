"""Answers to inquiries, which come from anybody and belong to no link: children, parents, status, what is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dcp.admission import HostBuckets
from peer.mesh import encoding, messages
from peer.mesh.messages import MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from peer.mesh.children import ChildTable
    from peer.mesh.hostport import HostPort
    from peer.mesh.parents import ParentTable
    from peer.mesh.reporting import Reporting
    from peer.mesh.state import MeshState
    from peer.mesh.surroundings import LinkObserver

MAX_QUESTIONS_PER_SECOND = 40.0
"""Children(Q) that are answered; each is compared with every child's query. A peer that walks asks one per refusal."""


class Inquiries:
    def __init__(
        self,
        own: MeshState,
        parents: ParentTable,
        children: ChildTable,
        *,
        reporting: Reporting,
        observer: LinkObserver,
        covers: Callable[[bytes, bytes], bool],
    ) -> None:
        self._own, self._parents, self._children = own, parents, children
        self._reporting, self._observer, self._covers = reporting, observer, covers
        self._questions = HostBuckets(MAX_QUESTIONS_PER_SECOND, MAX_QUESTIONS_PER_SECOND / 2)

    def answer(self, request: bytes, address: HostPort, now: float) -> bytes | None:
        """The answer to send, or None for nonsense and for too many questions that cost work (both counted)."""
        try:
            asked = encoding.decode_request_untrusted(request)
        except MalformedMessage:
            self._own.counters["malformed"] += 1
            return None
        match asked:
            case messages.ChildrenRequest(query):
                if query and not self._questions.allows(now, address[0]):
                    self._own.counters["inquiries_refused"] += 1
                    return None
                peers = self._children.answer(query, self._covers, self._own.rng)
                return encoding.encode_answer(messages.Peers(peers))
            case messages.ParentsRequest():
                return encoding.encode_answer(messages.Peers(self._parents.answer()))
            case messages.StatusRequest():
                return encoding.encode_answer(self._reporting.status())
            case messages.WantsRequest():
                return encoding.encode_answer(messages.Wanted(self._observer.wanted()))
            case messages.AboutRequest():
                return encoding.encode_answer(self._observer.about())
