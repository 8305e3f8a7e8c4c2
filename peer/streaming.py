"""The two ends of a stream at one peer, as its role wants them: opened on the hub, with the check of what comes in."""

from __future__ import annotations

from dcp import Hub
from dcp.compression import EnvelopeCheck
from dcp.receiver import Receiver
from dcp.sender import Sender
from peer.coreconfig import CoreConfig
from peer.queries import XPathPolicy
from peer.role import Role
from peer.trust.check import Trust


def open_stream(
    hub: Hub, config: CoreConfig, policy: XPathPolicy, trust: Trust | None, *, query: bytes
) -> tuple[Receiver | None, Sender | None]:
    """`query`: what is asked of the parents. Without `trust` signatures are not looked at."""
    if config.role is Role.ROOT:
        return None, hub.serve(config.stream, policy=policy)
    if trust is not None:
        trust.use(policy.envelope, policy.matches)
    accepts = trust or EnvelopeCheck(policy.envelope.content_untrusted)
    if config.role is Role.ROUTER:
        return hub.relay(
            config.stream,
            policy=policy,
            query=query,
            start=config.start,
            position=config.position,
            deliver=config.deliver,
            accepts=accepts,
            authority=trust,
            profile=config.profile,
        )
    receiver = hub.subscribe(
        config.stream,
        query=query,
        start=config.start,
        position=config.position,
        accepts=accepts,
        authority=trust,
        profile=config.profile,
    )
    return receiver, None
