"""Addresses, rate limits, timeouts, keys, remembered contacts, pins: each small, each bounded."""

from __future__ import annotations

import json
import random

import pytest

from dht.addresses import canonical, decode_address_untrusted, encode_address, parse_endpoint, source_group
from dht.config import NodeConfig
from dht.contacts import MAX_REMEMBERED, load_contacts, save_contacts
from dht.errors import PinsError, SeveralOwners, StreamOwnerChanged
from dht.identity import id_text
from dht.keys import (
    MAX_LEVEL_BUCKET,
    MAX_SHARD_DEPTH,
    buckets_below,
    candidate_key_of,
    level_bucket,
    random_shard,
    roots_key,
    shard_of,
)
from dht.pins import Pins
from dht.ratelimit import SourceLimiter
from dht.record import Role
from dht.rtt import Timeouts
from dht.streams import Grant
from tests.dht.build import NOW, identity, record_of

# --- addresses


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("::ffff:192.0.2.1", 5, 0, 0), ("192.0.2.1", 5)),
        (("2001:DB8::0:1", 5, 0, 0), ("2001:db8::1", 5)),
        (("fe80::1%eth0", 5, 0, 2), ("fe80::1", 5)),
        (("127.0.0.1", 5), ("127.0.0.1", 5)),
    ],
)
def test_an_address_has_one_spelling(given, expected):
    assert canonical(given) == expected
    assert decode_address_untrusted(encode_address(expected)) == expected


def test_what_one_party_has_for_nothing_is_one_source():
    assert source_group(("20.1.2.3", 1)) == source_group(("20.1.2.3", 2)) != source_group(("20.1.2.4", 1))
    assert source_group(("2001:db8::1", 1)) == source_group(("2001:db8::ffff", 9)) != source_group(("2001:db8:1::1", 1))
    assert source_group(("127.0.0.1", 1)) != source_group(("127.0.0.1", 2))


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "::1:80", "host:99999", "host:x", "[::1]"])
def test_an_endpoint_is_host_and_port(text):
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets"):
        parse_endpoint(text)


def test_endpoints():
    assert parse_endpoint("[::1]:4700") == ("::1", 4700)
    assert parse_endpoint("example.org:1") == ("example.org", 1)


# --- rate limits


def test_a_source_has_a_rate_and_a_burst_and_others_are_untouched():
    limiter = SourceLimiter(rate=10, burst=5, max_sources=100)
    assert [limiter.allows("a", now=0.0) for _ in range(6)] == [True] * 5 + [False]
    assert limiter.allows("b", now=0.0)
    assert [limiter.allows("a", now=0.1) for _ in range(2)] == [True, False]


def test_sources_are_forgotten_within_a_bound():
    limiter = SourceLimiter(rate=1, burst=1, max_sources=10)
    for number in range(1000):
        limiter.allows(str(number), now=0.0)
    assert len(limiter) == 10


# --- timeouts


def test_the_wait_follows_the_network_within_bounds():
    config = NodeConfig()
    timeouts = Timeouts(config)
    near, far, stranger = ("20.0.0.1", 1), ("20.0.0.2", 1), ("20.0.0.3", 1)
    assert timeouts.first_wait(near) == config.initial_timeout
    for _ in range(50):
        timeouts.learn(near, 0.001)
    assert timeouts.first_wait(near) == config.min_timeout
    for _ in range(50):
        timeouts.learn(far, 0.4)
    assert 0.4 < timeouts.first_wait(far) < 0.6
    assert timeouts.first_wait(near) == config.min_timeout
    assert config.min_timeout < timeouts.first_wait(stranger) <= config.max_timeout
    timeouts.learn(far, 100.0)
    assert timeouts.first_wait(far) == config.max_timeout


# --- keys


def test_level_buckets_double():
    assert [level_bucket(level) for level in (0, 511, 512, 1023, 1024, 2047, 2048, 2**32 - 1)] == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        MAX_LEVEL_BUCKET,
    ]
    assert buckets_below(0) == []
    assert buckets_below(512) == [0]
    assert buckets_below(513) == [0, 1]
    assert len(buckets_below(None)) == 7


def test_shards_split_those_above_them():
    for number in range(1, 60):
        peer_id = identity(number).peer_id
        for depth in range(1, MAX_SHARD_DEPTH + 1):
            assert shard_of(peer_id, depth) >> 2 == shard_of(peer_id, depth - 1)
        assert shard_of(peer_id, 0) == 0
    assert len({shard_of(identity(number).peer_id, 1) for number in range(1, 60)}) == 4
    assert 0 <= random_shard(3, random.Random(1)) < 64


def test_keys_differ_by_all_that_they_say():
    record = record_of(identity(1))
    keys = {candidate_key_of(record, depth=depth) for depth in range(4)}
    keys |= {roots_key("asdi"), roots_key("asdj"), candidate_key_of(record_of(identity(1), level=0), depth=0)}
    keys |= {candidate_key_of(record_of(identity(1), stream="asdj"), depth=0)}
    assert len(keys) == 8


# --- remembered contacts


def test_contacts_survive_a_restart(tmp_path):
    path = tmp_path / "state" / "contacts.json"
    contacts = [("192.0.2.1", 4700), ("2001:db8::1", 1)]
    save_contacts(path, contacts)
    assert load_contacts(path) == contacts
    save_contacts(path, [])  # nothing known is no reason to forget
    assert load_contacts(path) == contacts
    save_contacts(path, [("192.0.2.1", port) for port in range(1, 500)])
    assert len(load_contacts(path)) == MAX_REMEMBERED


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04\x95.",  # a pickle
        b"[]",
        b'{"format": "other", "contacts": []}',
        b'{"format": "skymesh contacts v1", "contacts": [["host.example", 1]]}',
        b'{"format": "skymesh contacts v1", "contacts": [["192.0.2.1"]]}',
        b'{"format": "skymesh contacts v1", "contacts": 5}',
        b"[" * 60000,
    ],
)
def test_a_damaged_contacts_file_is_as_good_as_none(tmp_path, content):
    path = tmp_path / "contacts.json"
    path.write_bytes(content)
    assert load_contacts(path) == []


def test_unusable_contacts_are_left_out(tmp_path):
    path = tmp_path / "contacts.json"
    contacts = [["0.0.0.0", 1], ["192.0.2.1", 0], ["224.0.0.1", 5], ["192.0.2.1", 70000], ["192.0.2.1", 5]]
    path.write_text(json.dumps({"format": "skymesh contacts v1", "contacts": contacts}))
    assert load_contacts(path) == [("192.0.2.1", 5)]


# --- pins


def root(number: int, owner: int | None = None, stream: str = "asdi"):
    who = identity(number)
    grant = None
    if owner is not None:
        grant = Grant.issue(identity(owner), stream=stream, peer_id=who.peer_id, expires_at=int(NOW) + 1000)
    return record_of(who, role=Role.ROOT, stream=stream, grant=grant)


def test_the_first_owner_is_pinned_and_kept(tmp_path):
    path = tmp_path / "pins.json"
    mine = [root(1, owner=9), root(2, owner=9)]
    assert Pins(path).trusted("asdi", mine) == mine
    later = Pins(path)
    assert later.owner("asdi") == identity(9).peer_id
    assert later.trusted("asdi", [root(3, owner=8), *mine]) == mine
    assert later.other_owner == 1


def test_another_owner_is_loud_and_says_how_to_accept_it(tmp_path):
    path = tmp_path / "pins.json"
    Pins(path).trusted("asdi", [root(1)])
    pins = Pins(path)
    with pytest.raises(StreamOwnerChanged) as caught:
        pins.trusted("asdi", [root(2)])
    told = str(caught.value)
    assert f"python -m dht pin asdi {id_text(identity(2).peer_id)} --pins {path}" in told
    assert id_text(identity(1).peer_id) in told
    pins.accept("asdi", identity(2).peer_id)
    assert Pins(path).trusted("asdi", [root(2)]) == [root(2)]


def test_two_free_records_of_another_owner_do_not_capture_an_open_name(tmp_path):
    path = tmp_path / "pins.json"
    seen = [root(1), root(2, owner=9), root(3, owner=9)]
    pins = Pins(path)
    with pytest.raises(SeveralOwners) as caught:
        pins.trusted("asdi", seen)
    told = str(caught.value)
    assert set(caught.value.owners) == {identity(1).peer_id, identity(9).peer_id}
    assert all(id_text(owner) in told for owner in caught.value.owners)
    assert "--owner-id" in told
    assert f"python -m dht pin asdi FINGERPRINT --pins {path}" in told
    assert Pins(path).owner("asdi") is None
    pins.choose("asdi", identity(1).peer_id)
    assert pins.trusted("asdi", seen) == [root(1)]
    assert Pins(path).trusted("asdi", seen) == [root(1)]


def test_a_crowd_of_owners_does_not_make_the_sentence_long():
    with pytest.raises(SeveralOwners) as caught:
        Pins().trusted("asdi", [root(number) for number in range(1, 61)])
    assert len(caught.value.owners) == 60
    assert "and 52 more" in str(caught.value)


def test_an_owner_that_the_name_contradicts_is_not_chosen():
    stream = f"asdi.{identity(9).fingerprint}"
    Pins().choose(stream, identity(9).peer_id)
    with pytest.raises(ValueError, match="fingerprint of another owner"):
        Pins().choose(stream, identity(1).peer_id)


def test_nothing_is_pinned_for_a_name_that_names_its_owner():
    stream = f"asdi.{identity(9).fingerprint}"
    pins = Pins()
    assert pins.owner(stream) == identity(9).peer_id
    with pytest.raises(ValueError, match="contains its owner"):
        pins.accept(stream, identity(1).peer_id)


def test_a_damaged_pin_file_is_an_error_not_an_empty_one(tmp_path):
    path = tmp_path / "pins.json"
    path.write_text("{}")
    with pytest.raises(PinsError, match="damaged"):
        Pins(path)


def test_a_pin_file_that_cannot_be_written_is_told(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(PinsError, match="cannot"):
        Pins(blocked / "pins.json").trusted("asdi", [root(1)])
