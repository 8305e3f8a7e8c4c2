"""The campaigns again, with profiles and protections drawn at random, and changed while the stream runs.

The promises are the same: nothing skipped in silence, nothing twice, nothing wrong, no honest peer accused. Clients
with a deadline, or that want the newest, may get more gaps, and no other difference.
"""

from __future__ import annotations

import random
from typing import Any

from dcp import events
from dcp.hub import Hub
from dcp.profile import PLAIN, Profile, profile_of
from dcp.receiver import Receiver
from dcp.sender import Sender
from dcp.steer import CHOICES
from tests.dcp.campaign import CONFIG, Campaign, Node
from tests.dcp.diversity import Diversity
from tests.dcp.lying_campaign import LyingCampaign, LyingNode

CHANGE_INTERVAL = 0.3


class ProfiledHub(Hub):
    """Every stream here is received with one profile."""

    profile: Profile = PLAIN

    def subscribe(self, stream: str, **options: Any) -> Receiver:
        return super().subscribe(stream, profile=self.profile, **options)

    def relay(self, stream: str, **options: Any) -> tuple[Receiver, Sender]:
        return super().relay(stream, profile=self.profile, **options)


def client_profile(rng: random.Random, *, gives_up: bool) -> Profile:
    names = [profile_of(name) for name in ("reliable", "latency", "bandwidth")]
    if gives_up:
        names += [profile_of("newest"), profile_of(deadline=0.05), profile_of(deadline=0.4, loss_budget=0.01)]
    return rng.choice(names)


def change_protection(receiver: Receiver, rng: random.Random) -> None:
    """As the controller does, only without a reason."""
    steering = receiver.mending.steering
    steering.choice = rng.choice(CHOICES)._replace(repairs=rng.choice([1, 1, 2]), span=rng.choice([1, 4, 4, 8]))
    steering.why = rng.choice(["fixed", "at random"])  # of every parent, or of the fastest


class Protected:
    """What both campaigns' nodes have in common: a source of profiles of their own, so that stories stay the same."""

    def draw(self, campaign: Campaign, name: str, kind: str, rng: random.Random, *, gives_up: bool) -> ProfiledHub:
        hub = ProfiledHub(CONFIG, rng=rng)
        chance = random.Random(f"{campaign.seed} {name}")
        hub.profile = client_profile(chance, gives_up=gives_up and kind == "client")
        campaign.net.after(CHANGE_INTERVAL, self._change, campaign, hub, chance)
        return hub

    def _change(self, campaign: Campaign, hub: Hub, chance: random.Random) -> None:
        if not campaign.calm:
            campaign.net.after(CHANGE_INTERVAL, self._change, campaign, hub, chance)
        for receiver in hub.receivers.values():
            change_protection(receiver, chance)


class ProtectedNode(Protected, Node):
    def new_hub(self, rng: random.Random) -> Hub:
        return self.draw(self.campaign, self.name, self.kind, rng, gives_up=True)


class ProtectedCampaign(Campaign):
    node_class = ProtectedNode


class ProtectedLyingNode(Protected, LyingNode):
    def new_hub(self, rng: random.Random) -> Hub:
        made = super().new_hub(rng)
        if type(made) is not Hub:
            return made  # a liar's
        return self.draw(self.campaign, self.name, self.kind, rng, gives_up=False)


class ProtectedLyingCampaign(LyingCampaign):
    node_class = ProtectedLyingNode


class ProtectedDiversity(Diversity):
    """One receiver, exact: in the order of the stream or of arrival, under a protection that changes."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(f"{seed} protected")
        name = chance.choice(["reliable", "latency", "bandwidth"])
        super().__init__(seed, profile=profile_of(name, order=chance.choice(["sequence", "arrival"])))
        self.world.net.after(1.0, self._change)

    def _change(self) -> None:
        if self.stormy:
            self.world.net.after(CHANGE_INTERVAL, self._change)
        change_protection(self.world.hubs["client"].receivers["test"], self.chance)

    def check(self) -> None:
        world = self.world
        if self.profile.order == "sequence":
            super().check()
            return
        got = [event for event in world.got["client"] if not isinstance(event, events.Started)]
        assert not world.gaps("client")
        assert len(got) == len(self.sent)
        assert sorted(tuple(event) for event in got) == self.sent
        assert world.receivers["client"].position == self.sent[-1][0]
