"""The Diversity Control Protocol."""
