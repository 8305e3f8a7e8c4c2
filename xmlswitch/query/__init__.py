"""The language: from a subscriber's text to a checked query in canonical form, and what follows from queries alone."""
