"""The name that `asdi.flights` had until version 0.2."""

from asdi.flights import *  # noqa: F403
