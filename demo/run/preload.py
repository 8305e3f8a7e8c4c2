"""Imported once, by the process from which all peers are forked: they start in milliseconds, with the flights read."""

from __future__ import annotations

import demo.run.child  # noqa: F401  (what every peer runs)
import xmlswitch.query.xpath2  # noqa: F401  (imported when first needed, and then a router would stand still for it)
from demo.run.feed import warm_up
from demo.run.lifeline import die_with_parent

die_with_parent()
warm_up()
