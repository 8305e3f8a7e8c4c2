"""The name that `pipeline.archive.jobs` had until version 0.2."""

from pipeline.archive.jobs import compact, read, retain, verify

__all__ = ["compact", "read", "retain", "verify"]
