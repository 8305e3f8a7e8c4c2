"""`python -m xmlswitch`: see `cli`."""

from xmlswitch.cli import run

if __name__ == "__main__":
    run()
