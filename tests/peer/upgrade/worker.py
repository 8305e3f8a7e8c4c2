"""A peer of whatever version PYTHONPATH names, in a process of its own. It uses only what all versions have.

The argument is JSON: `make` (root or join), `stream`, and keywords. It prints JSON, one object per line: first the
address, and at a client what it is handed. A line on stdin is a command: ["feed", start, rate, last] at a root, with
`start` on the clock of the machine; ["parents", n]; ["state"]. The end of stdin ends it.
"""

import json
import sys
import time

import trio

import peer


def tell(**what):
    print(json.dumps(what), flush=True)


def packet(number):
    return b"<p><n>%d</n><c>%d</c></p>" % (number, number % 5)


async def feed(root, start, rate, last):
    """All roots give a packet the same number: the clock says which is due. What was before is a hole to a new one."""
    number = max(0, int((time.monotonic() - start) * rate))
    if number:
        root.publish_hole(number)
    while number < last:
        while number < last and number < int((time.monotonic() - start) * rate):
            number += 1
            await root.send(packet(number), an=number)
        await trio.sleep(1 / rate)
    tell(fed=last)


async def follow(stream):
    async for item in stream:
        if isinstance(item, peer.Packet):
            assert item.payload == packet(item.an)
            tell(an=item.an)
        elif isinstance(item, peer.Gap):
            tell(gap=[item.after, item.until])


async def main():
    given = json.loads(sys.argv[1])
    make, stream = given.pop("make"), given.pop("stream")
    given["listen"] = tuple(given.get("listen", ("127.0.0.1", 0)))
    given["bootstrap"] = [tuple(each) for each in given.get("bootstrap", ())]
    async with getattr(peer, make)(stream, beacon=False, **given) as running, trio.open_nursery() as nursery:
        tell(address=running.address, home=peer.__file__)
        if make == "join":
            nursery.start_soon(follow, running)
        while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            match json.loads(line):
                case ["feed", start, rate, last]:
                    nursery.start_soon(feed, running, start, rate, last)
                case ["parents", count]:
                    await running.wait_parents(count)
                    tell(parents=count)
                case ["state"]:  # of the present version
                    now = running.statistics()
                    encrypted = [parent.encrypted for parent in now.parents]
                    tell(encrypted=encrypted, signed=running.trust.is_signed, disputed=now.disputed)
        nursery.cancel_scope.cancel()


trio.run(main)
