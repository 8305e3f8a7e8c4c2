"""`gateway`: a stream over WebSocket and Server-Sent Events."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import trio

from dht.addresses import endpoint_text
from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.running import beside, expect_directory, named_by, note, peer_options, run
from peer.errors import PeerError
from peer.gateway.app import Access, Gateway
from peer.gateway.history import History
from peer.gateway.serve import bind, check_certificate, client_script, serve
from peer.opening import open_peer
from peer.role import Role

MAX_TOKEN_BYTES = 1_024


def gateway(settings: Settings) -> int:
    _check_installed()
    certificate: Path | None = settings["certificate"]
    key: Path | None = settings["certificate_key"]
    if certificate is None and key is not None:
        raise CliError("--certificate-key needs --certificate", ExitCode.USAGE)
    if certificate is not None:
        try:
            check_certificate(certificate, key)
        except PeerError as error:
            raise CliError(f"--certificate: {error}", ExitCode.KEY_FILE) from None
    access = Access(token=_token(settings["token_file"]), origins=frozenset(map(_origin, settings["allow_origin"])))
    history = History(settings["history_bytes"], max_readers=settings["max_clients"])
    web = Gateway(settings["roots_key"], history, access, client_script())
    options = peer_options(settings, Role.LEAF, listen=settings["peer_listen"])

    async def command() -> int:
        with named_by("--listen", settings["listen"]):
            listening = bind(settings["listen"])
        host, port = listening.getsockname()[:2]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: serve(web, listening, certificate=certificate, key=key))
            place = endpoint_text(("127.0.0.1" if host in ("0.0.0.0", "::") else host, port))
            note(f"clients connect to {'https' if certificate else 'http'}://{place}/v1/{settings['roots_key']}/events")
            async with open_peer(options) as peer:
                nursery.start_soon(expect_directory, peer, settings)
                await beside(peer, settings, nursery, live=True)
                while items := await peer.receive_many():
                    web.put(items)
            nursery.cancel_scope.cancel()
        return ExitCode.OK

    return run(settings, command)


def _check_installed() -> None:
    from importlib.util import find_spec

    if find_spec("hypercorn") is None:
        raise CliError("the gateway needs hypercorn: install it with `pip install 'skymesh[gateway]'`", ExitCode.USAGE)


def _token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        mode = path.stat().st_mode
        with path.open() as file:
            token = file.read(MAX_TOKEN_BYTES + 1).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"--token-file {path}: {getattr(error, 'strerror', error)}", ExitCode.KEY_FILE) from None
    if mode & 0o077:
        raise CliError(f"--token-file {path}: others can read it; run `chmod 600 {path}`", ExitCode.KEY_FILE)
    if not 16 <= len(token) <= MAX_TOKEN_BYTES or not (token.isascii() and token.isprintable() and " " not in token):
        raise CliError(
            f"--token-file {path}: expected one line of 16 to {MAX_TOKEN_BYTES} letters and digits; make one with "
            "`openssl rand -hex 32`",
            ExitCode.KEY_FILE,
        )
    return token


def _origin(text: str) -> str:
    parts = urlsplit(text)
    if text != "*" and (parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/")):
        raise CliError(f"--allow-origin: expected scheme://host[:port] or *, got {text!r}", ExitCode.USAGE)
    return text.rstrip("/")
