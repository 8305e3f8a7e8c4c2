"""Trust on first use for open stream names: the first owner seen is written down, and another one is loud."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dht.errors import PinsError, SeveralOwners, StreamOwnerChanged
from dht.identity import id_text, parse_id_text
from dht.ids import PeerId
from dht.streams import check_stream_name, owner_of_name

if TYPE_CHECKING:
    from dht.record import PeerRecord

_FORMAT = "skymesh pins v1"
_MAX_FILE_BYTES = 1 << 20
MAX_PINS = 1024
MAX_OWNERS_NAMED = 8  # in one sentence; a stranger can make owners for nothing


class Pins:
    """Stream -> owner, in a JSON file, or in memory alone when `path` is None."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._owners = _load(path) if path is not None else {}
        self.other_owner = 0  # roots left out because their owner is not the pinned one

    def owner(self, stream: str) -> PeerId | None:
        """Whom the roots of a stream must belong to, as far as that is settled."""
        return owner_of_name(stream) or self._owners.get(stream)

    def accept(self, stream: str, owner: PeerId) -> None:
        """Pin this owner, whatever was pinned before. PinsError when the file cannot be written."""
        check_stream_name(stream)
        if owner_of_name(stream) is not None:
            raise ValueError(f"{stream} contains its owner's fingerprint and can't be pinned")
        if stream not in self._owners and len(self._owners) >= MAX_PINS:
            raise ValueError(f"{MAX_PINS} streams are already pinned; remove some from {self._path}")
        self._owners[stream] = owner
        if self._path is not None:
            _save(self._path, self._owners)

    def choose(self, stream: str, owner: PeerId) -> None:
        """A person named the owner: pin it unless it is settled so already. ValueError when the name says otherwise."""
        settled = self.owner(stream)
        if settled == owner:
            return
        if owner_of_name(stream) is not None:
            raise ValueError(f"{stream} contains the fingerprint of another owner, not {id_text(owner)}")
        self.accept(stream, owner)

    def trusted(self, stream: str, roots: Iterable[PeerRecord]) -> list[PeerRecord]:
        """The roots of the stream's owner; pins that owner when the stream is open and new.

        When there are roots, but none of the pinned owner's: StreamOwnerChanged, which says how to accept the change.
        Several owners at first sight: SeveralOwners, which says how to choose. Records are free, so neither their
        number nor their age says anything about which owner is right.
        """
        roots = list(roots)
        owner = self.owner(stream)
        if not roots:
            return []
        if owner is None:
            owners = sorted({root.owner for root in roots})
            if len(owners) > 1:
                raise self._several(stream, tuple(owners))
            owner = owners[0]
            self.accept(stream, owner)
        trusted = [root for root in roots if root.owner == owner]
        self.other_owner += len(roots) - len(trusted)
        if not trusted:
            raise self._changed(stream, owner, roots)
        return trusted

    def _several(self, stream: str, owners: tuple[PeerId, ...]) -> SeveralOwners:
        named = ", ".join(id_text(owner) for owner in owners[:MAX_OWNERS_NAMED])
        if len(owners) > MAX_OWNERS_NAMED:
            named += f" and {len(owners) - MAX_OWNERS_NAMED} more (python -m dht get {stream} lists all)"
        kept = f", or save it with: python -m dht pin {stream} FINGERPRINT --pins {self._path}" if self._path else ""
        return SeveralOwners(
            f"roots of {len(owners)} owners serve the stream {stream}, and it is not known which owner is the "
            f"right one: {named}. Ask the stream's operator for its owner's fingerprint (a root prints it when it "
            f"starts) and choose it with --owner-id FINGERPRINT{kept}",
            owners,
        )

    def _changed(self, stream: str, owner: PeerId, roots: list[PeerRecord]) -> StreamOwnerChanged:
        came = id_text(Counter(root.owner for root in roots).most_common(1)[0][0])
        where = f" --pins {self._path}" if self._path is not None else ""
        return StreamOwnerChanged(
            f"the stream {stream} now belongs to another owner: {id_text(owner)} is pinned, the roots are of {came}. "
            f"They may be impostors. If the change is intended, accept it: python -m dht pin {stream} {came}{where}"
        )


def _load(path: Path) -> dict[str, PeerId]:
    """A damaged pin file is an error, never an empty one: forgetting whom to trust is what an attacker wants."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_MAX_FILE_BYTES))
        if document["format"] != _FORMAT:
            raise ValueError("unknown format")
        return {check_stream_name(stream): parse_id_text(owner) for stream, owner in document["owners"].items()}
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise PinsError(f"cannot read the pin file {path}: {exc}") from exc
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise PinsError(
            f"the pin file {path} is damaged ({exc}); repair it, or delete it to trust the next owner seen"
        ) from exc


def _save(path: Path, owners: dict[str, PeerId]) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    document = {"format": _FORMAT, "owners": {stream: id_text(owner) for stream, owner in sorted(owners.items())}}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps(document, indent=1) + "\n")
        aside.replace(path)
    except OSError as exc:
        raise PinsError(f"cannot write the pin file {path}: {exc}") from exc
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()
