"""Every figure that skymesh claims, as a command that prints it again: `python -m bench NAME [--json]`.

One module a figure. A module has `SUMMARY` (one line for the list), `add_arguments(parser)` and `run(args) -> Report`.
Speed is given as a ratio within one run, because machines are shared and noisy; times stand beside it for scale.
"""
