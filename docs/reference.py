"""`make api`: the API reference as static HTML, from the docstrings.

The public packages load their names when they are first used; pdoc sees only what is loaded.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

PACKAGES = ("skymesh", "peer.blocking", "peer.guest", "dcp", "xmlswitch", "dht")


def write(folder: Path) -> None:
    import pdoc

    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            setattr(module, name, getattr(module, name))
    warnings.simplefilter("ignore")  # names that only type checkers import are shown as they are written
    pdoc.render.configure(docformat="markdown", show_source=False, footer_text="skymesh")
    pdoc.pdoc(*PACKAGES, output_directory=folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
