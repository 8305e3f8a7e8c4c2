"""The command line, `python -m peer` and `skymesh`: one file for each command."""
