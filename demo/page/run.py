"""A mesh with its page: start both, print the address, run until Ctrl-C."""

from __future__ import annotations

import mimetypes
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from importlib.resources import files
from typing import Any, NoReturn

import trio

from demo.check.observed import MeshError
from demo.errors import DemoError
from demo.page.gateways import Gateways
from demo.page.server import Answer, PageServer, Socket
from demo.page.session import Session, Stage
from demo.run.interruptible import run_interruptible
from demo.run.localmesh import open_mesh
from demo.run.settings import DemoSettings
from peer.gateway.serve import client_script


def static_files() -> dict[str, Answer]:
    """Everything that is ever served, by path, read once: no path from outside reaches the disk."""
    found: dict[str, Answer] = {}
    for item in (files("demo.page") / "static").iterdir():
        kind = mimetypes.guess_type(item.name)[0] or "application/octet-stream"
        if kind == "application/javascript":
            kind = "text/javascript"
        charset = "; charset=utf-8" if kind.startswith("text/") else ""
        found[f"/{item.name}"] = Answer(item.read_bytes(), kind + charset)
    found["/"] = found["/index.html"]
    found["/skymesh.js"] = Answer(client_script(), "text/javascript; charset=utf-8")
    return found


async def _import(name: str) -> None:
    await trio.to_thread.run_sync(import_module, name)


def run_page(settings: DemoSettings, port: int) -> int:
    async def main() -> NoReturn:
        print(
            f"starting {settings.dht_nodes} DHT nodes, {settings.roots} roots, {settings.routers} routers and "
            f"{settings.clients} clients",
            file=sys.stderr,
            flush=True,
        )
        async with open_mesh(settings) as mesh, trio.open_nursery() as nursery:
            stage = Stage(mesh, nursery)

            async def talk(socket: Socket, orders: AsyncIterator[dict[str, Any]]) -> None:
                await Session(stage, socket).run(orders)

            gateways = Gateways(mesh.members)
            mesh.takers.append(gateways.put)
            server = PageServer(static_files().get, talk, gateways.find)
            try:
                bound = await nursery.start(server.serve, port)
            except OSError as error:
                raise DemoError(f"the page can't use port {port}: {error.strerror or error}") from None
            print(f"mesh running; open  http://127.0.0.1:{bound}/#{server.token}")
            # What a query of a later XPath needs is imported now, so that nothing stands still when somebody types one.
            nursery.start_soon(_import, "xmlswitch.query.xpath2")
            print("Ctrl-C stops the demo and all its processes", file=sys.stderr)
            sys.stdout.flush()
            await trio.sleep_forever()

    try:
        return run_interruptible(main)
    except MeshError as error:
        raise DemoError(str(error)) from None
