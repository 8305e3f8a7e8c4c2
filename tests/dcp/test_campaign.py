"""Seeded campaigns in virtual time. A failure prints its seed, and that seed repeats it exactly (docs/testing.md)."""

from __future__ import annotations

import random

import pytest

from dcp import events
from dcp.control import Reason
from dcp.testing import Conditions
from tests.dcp.campaign import Campaign
from tests.dcp.diversity import Diversity
from tests.dcp.lying_campaign import LyingCampaign
from tests.dcp.protected_campaign import ProtectedCampaign, ProtectedDiversity, ProtectedLyingCampaign
from tests.dcp.world import World

CHUNK = 25
SOAK_SEEDS = 10_000
LYING_SOAK_SEEDS = 2_000


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 8, 4))
def test_meshes_hand_over_the_stream_or_say_what_is_missing(first):
    for seed in range(first, first + 4):
        Campaign(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 4, 4))
def test_meshes_hand_over_no_damaged_copy(first):
    """Each root has some bad copies, which nobody accepts: the other root's is used, or the packet is a gap."""
    for seed in range(first, first + 4):
        Campaign(seed, damaged=0.3).run()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 8, 4))
def test_meshes_with_profiles_and_protections_that_change(first):
    for seed in range(first, first + 4):
        ProtectedCampaign(seed, damaged=0.3 * (seed % 2)).run()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 8, 4))
def test_one_receiver_with_any_profile_and_protection(first):
    for seed in range(first, first + 4):
        ProtectedDiversity(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 22, 4))
def test_liars_cost_no_packet_under_protection(seed):
    ProtectedLyingCampaign(seed).run()


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, LYING_SOAK_SEEDS, CHUNK))
def test_profiles_and_protections_soak(first):
    for seed in range(first, first + CHUNK):
        ProtectedCampaign(seed, damaged=0.3 * (seed % 2)).run()
        ProtectedDiversity(seed).run()
        ProtectedLyingCampaign(seed).run()


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAK_SEEDS, CHUNK))
def test_meshes_soak(first):
    for seed in range(first, first + CHUNK):
        Campaign(seed, damaged=0.3 * (seed % 2)).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(22))
def test_liars_cost_no_packet_while_queries_change(seed):
    """Each of the 11 kinds, with and without signatures. The honest meshes above must not see any accusation."""
    LyingCampaign(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 44, 9))
def test_liars_cost_no_packet_while_peers_freeze_die_and_change_their_parents(seed):
    LyingCampaign(seed, wide=True).run()


@pytest.mark.soak
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("first", range(0, LYING_SOAK_SEEDS, CHUNK))
def test_liars_soak(first, wide):
    for seed in range(first, first + CHUNK):
        LyingCampaign(seed, wide=wide).run()


@pytest.mark.parametrize("seed", [1, 8, 11, 40, 45, 51, 55, 67, 165, 224, 430, 837])
def test_liars_that_were_believed_once(seed):
    """Found here: old books closed too soon, corrections in the wrong epoch, one word carrying us ahead of the stream,
    nobody comparing what the first parent said before the second one was up, all honest links reset by two changes of
    the query (51), four changes without a packet that closed the book of the query before them (45), and a router that
    answered an index and did not correct it since its child had come later (165).
    A forger as the only parent so far made a gap that reached beyond the signed head (224). Emptiness beyond the signed
    head carried a client ahead of the stream, where a change of the query found it (430). Parents a little behind a
    liar's proposed start were not heard at all (837)."""
    LyingCampaign(seed).run()


@pytest.mark.parametrize("seed", [430, 569])
def test_nobody_honest_is_convicted_after_a_freeze(seed):
    """Found here: a router that thawed heard a liar first, and called settled what it had no chance to compare (569),
    or what lay before a change of its query (430)."""
    LyingCampaign(seed, wide=True).run()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 8, 4))
def test_one_receiver_gets_everything_from_whoever_is_there(first):
    for seed in range(first, first + 4):
        Diversity(seed).run()


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAK_SEEDS, CHUNK))
def test_one_receiver_soak(first):
    for seed in range(first, first + CHUNK):
        Diversity(seed).run()


@pytest.mark.parametrize("seed", [291, 301])
def test_at_half_loss_the_one_sender_that_is_left_keeps_up_with_the_stream(seed):
    """Found here: one lost packet held all that was sent after it in the window, and the stream fell behind."""
    Diversity(seed).run()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_seed_repeats_exactly(seed):
    first, second = Diversity(seed, duration=2.0).run(), Diversity(seed, duration=2.0).run()
    assert first.sent == second.sent
    assert first.world.net.steps == second.world.net.steps
    assert [h.statistics() for h in first.world.hubs.values()] == [h.statistics() for h in second.world.hubs.values()]


@pytest.mark.parametrize("senders", [2, 3, 4])
@pytest.mark.parametrize("how", ["crash", "freeze"])
def test_all_senders_but_one_die_and_nothing_is_late_or_asked_for(senders, how):
    """Promise 2: no retransmission round and no wait for repair, only the network's delay."""
    for seed in range(4):
        rng = random.Random(seed)
        world = World(seed, conditions=Conditions(delay=0.02))
        living = [f"root{i}" for i in range(senders)]
        for name in living:
            world.root(name)
        receiver = world.client("client", living)
        world.run(0.5)
        rng.shuffle(living)
        doomed_at = {round(0.5 + rng.uniform(0, 0.5), 3): name for name in living[1:]}
        late = 0.0
        for an in range(1, 401):
            published_at = world.net.now
            for name in living:
                world.publish(name, b"x" * rng.randrange(300), an=an)
            while receiver.position < an:
                world.net.run_until(world.net.now + 0.001)
            late = max(late, world.net.now - published_at)
            for when in [when for when in doomed_at if when <= world.net.now]:
                name = doomed_at.pop(when)
                getattr(world.net, how)((name, 1))
                if how == "crash":
                    living.remove(name)
        world.run(7.0)
        statistics = receiver.statistics(world.net.now)
        assert not doomed_at
        assert [an for an, _ in world.packets("client")] == list(range(1, 401)), f"seed {seed}"
        assert (statistics.nacks, statistics.recovered, statistics.gaps) == (0, 0, 0), f"seed {seed}"
        assert late < 0.0215, f"seed {seed}"
        assert [event.reason for event in world.told("client", events.LinkLost)] == [Reason.SILENT] * (senders - 1)
