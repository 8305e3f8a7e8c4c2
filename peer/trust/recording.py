"""The proofs of a recording on disk: written beside it, and read again to verify it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from dcp.compression import Compressor
from dht.ids import PeerId
from peer.errors import PeerError
from peer.packetlog import Entry, Gap, Late, LogConfig, PacketLogError, Reader, Writer
from peer.trust.proofs import FOLDER, KEYS_FILE, Finding, RecordingVerifier, merged_keys, proof_of
from peer.trust.rootkeys import RootKeys
from peer.trust.withholding import unmarked_untrusted

MAX_KEYS_BYTES = 64 << 10
MAX_AHEAD = 65_536
"""Proofs that are held while their packet has not been read yet."""


class ProofWriter:
    """Beside a `Writer`. `keep` is called for each packet as it came, `flush` before the batch goes to the log."""

    def __init__(self, directory: Path, config: LogConfig, stream: str) -> None:
        self._folder = directory / FOLDER
        self._config = config
        self._stream = stream
        self._writer: Writer | None = None  # until something was signed
        self._waiting: list[tuple[int, bytes]] = []
        self._keys_written = ""

    def keep(self, an: int, envelope: bytes) -> None:
        proof = proof_of(envelope)
        if proof is not None:
            self._waiting.append((an, proof))

    def take(self) -> list[tuple[int, bytes]]:
        """What was kept since the last time, for `flush` in a thread."""
        taken, self._waiting = self._waiting, []
        return taken

    def flush(self, proofs: list[tuple[int, bytes]], keys: RootKeys | None, now: float) -> None:
        """First the keys, then the proofs, then (by the caller) the packets: what is recorded can be verified."""
        if not proofs:
            return
        if self._writer is None:
            self._writer = Writer(self._folder, self._config, stream=self._stream)
        if keys:
            text = merged_keys(self._keys_written or keys_in(self._folder), keys)
            if text != self._keys_written:
                write_keys(self._folder, text)
                self._keys_written = text
        # As late packets, whose numbers need not rise: a crash between proof and packet makes one come twice.
        self._writer.append([Late(an, int(now * 1e6), proof) for an, proof in proofs])

    def sync(self) -> None:
        if self._writer is not None:
            self._writer.sync()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def verify_recording(
    directory: Path, owner: PeerId, *, dictionary: bytes | None = None
) -> Iterator[tuple[RecordingVerifier, int, Finding]]:
    """(the verifier with its counts, AN, finding) for each packet. PeerError if there is nothing to verify."""
    if (directory / "_manifest").is_dir():
        raise PeerError(f"{directory} is an archive: use `python -m pipeline verify {directory} --owner FINGERPRINT`")
    try:
        reader = Reader(directory, durable=False)
        stream = reader.stream
        packets = reader.iterate(reader.first_position())
        if stream is None:
            raise PeerError(f"{directory} does not say which stream it holds: record it again")
        proofs, keys_text = _proofs_in(directory / FOLDER)
        try:
            unpack = Compressor("none", dictionary=dictionary).unpack_untrusted
            verifier = RecordingVerifier(stream, owner, keys_text, lambda inner: unpack(unmarked_untrusted(inner)))
        except ValueError as error:
            raise PeerError(f"{directory / FOLDER / KEYS_FILE}: {error}") from None
        ahead: dict[int, bytes] = {}
        for _, entry in packets:
            if isinstance(entry, Gap):
                continue
            proof = _find(entry.an, ahead, proofs)
            yield verifier, entry.an, verifier.judge_untrusted(entry.an, entry.payload, proof)
    except PacketLogError as error:
        raise PeerError(str(error)) from None


def _proofs_in(folder: Path) -> tuple[Iterator[tuple[int, Entry]], str]:
    if not folder.is_dir():
        return iter(()), ""
    reader = Reader(folder, durable=False)
    return reader.iterate(reader.first_position()), keys_in(folder)


def write_keys(folder: Path, text: str) -> None:
    """The file with the keys of the roots, whole."""
    aside = folder / f".{KEYS_FILE}"
    aside.write_text(text)
    aside.replace(folder / KEYS_FILE)


def keys_in(folder: Path) -> str:
    """The keys of the roots that a folder of proofs holds, as text. PeerError if they can't be read."""
    try:
        with (folder / KEYS_FILE).open("rb") as file:
            return file.read(MAX_KEYS_BYTES).decode("ascii", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise PeerError(f"{folder / KEYS_FILE}: {error.strerror}") from None


def _find(an: int, ahead: dict[int, bytes], proofs: Iterable[tuple[int, Entry]]) -> bytes | None:
    """Proofs lie in about the order of their packets."""
    if an not in ahead:
        for _, entry in proofs:
            if isinstance(entry, Gap):
                continue
            ahead[entry.an] = entry.payload
            if entry.an == an:
                break
            if len(ahead) > MAX_AHEAD:
                ahead.pop(next(iter(ahead)))
    return ahead.pop(an, None)
