"""Standing queries of many links, held so that a packet meets only those that it may match."""
