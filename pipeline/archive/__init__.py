"""The archive: Parquet files that a manifest names. docs/pipeline.md is the specification."""

from pipeline.archive.manifest import Archive, ArchiveError, DataFile, Job

__all__ = ["Archive", "ArchiveError", "DataFile", "Job"]
