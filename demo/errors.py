"""What ends a demo with one sentence on the terminal."""


class DemoError(Exception):
    """The sentence to print."""
