"""A running mesh into the archive, and the commands of peer that this needs."""
