"""A desktop program that embeds a peer: flights that move, a query box, a lamp. Needs the extra `desktop`.

python -m demo.desktop --help
"""
