"""Options of the Spark format `mesh`: one that does not exist is an error, not a setting that nobody reads."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from pipeline.session import PipelineError


def check_options(given: Iterable[str], known: Sequence[str], what: str) -> None:
    """`PipelineError` that names an option which does not exist, and the nearest one that does."""
    lower = {name.lower(): name for name in known}
    for name in given:
        if name.lower() not in lower:
            near = difflib.get_close_matches(name.lower(), lower, 1, 0.5)
            meant = f"; did you mean {lower[near[0]]}?" if near else f"; there are {', '.join(known)}"
            raise PipelineError(f"the {what} `mesh` has no option {name!r}{meant}")
