"""The name that `asdi` had until version 0.2."""

from asdi import *  # noqa: F403
