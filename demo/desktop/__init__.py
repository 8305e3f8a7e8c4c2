"""A desktop program that embeds a peer: moving flights, a query box, a resilience indicator. Needs the extra `desktop`.

python -m demo.desktop --help
"""
