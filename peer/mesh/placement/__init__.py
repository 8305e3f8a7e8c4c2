"""Where in the mesh this peer should be: one `Placement` looks at the neighbourhood and returns moves.

`neighbourhood` is what a placement may see, `moves` is what it may answer. `choosing` holds what the two
implementations share, `eviction` whom to send elsewhere; `scored` and `walk` are the implementations. To add one, write
a file with a class that satisfies `Placement` and enter it in `peer.placements.PLACEMENTS`.
"""
