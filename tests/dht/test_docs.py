"""docs/dht.md and the code say the same: golden bytes, limits, names."""

from __future__ import annotations

import re
from pathlib import Path

from dht.config import NodeConfig, StoreLimits
from dht.record import MAX_RECORD_BYTES
from dht.shell.beacon import GROUP, PORT
from tests.dht.test_record import GOLDEN

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "dht.md").read_text()


def test_the_golden_bytes_are_the_tested_ones():
    block = next(block for block in PAGE.split("```") if "7422b988" in block)
    told = "".join(re.match(r"(?:[0-9a-f]+ ?)*", line).group().replace(" ", "") for line in block.splitlines())
    assert told == GOLDEN.hex()


def test_the_limits_are_the_codes():
    limits, config = StoreLimits(), NodeConfig()
    for said in (
        f"records per key | {limits.max_records_per_key} |",
        f"of one source per key | {limits.max_per_source_per_key} |",
        f"forwarded by other nodes, per key | {limits.max_handed_per_key} |",
        f"keys per publisher | {limits.max_keys_per_publisher} |",
        f"records in total | {limits.max_records:,} ",
        f"{config.request_rate:.0f} requests per second and source (burst {config.request_burst:.0f}",
        f"{config.max_outstanding:,} requests outstanding",
        f"at most {config.max_lookup_queries} nodes, at most {config.max_per_source_in_lookup} of one source",
        f"{config.max_per_source_in_bucket} of one source per bucket and {config.max_per_source_in_table} in total",
        f"above {config.max_datagram_bytes:,} bytes",
        f"{MAX_RECORD_BYTES} at most",
        f"Lifetime {config.record_lifetime:.0f} s",
        f"between {config.min_timeout} and {config.max_timeout} s",
        f"multicast {GROUP} port {PORT}",
    ):
        assert re.sub(r"\s+", " ", said) in re.sub(r"\s+", " ", PAGE), said
