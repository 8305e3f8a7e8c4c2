"""The optimizer: how a mesh moves towards its goal (docs/optimizer.md). Pure.

`layout` is a mesh as a whole, with its levels; `costs` computes a goal on it, `transformations` says what can be
changed, `coordinator` is the mode in which the root decides. `blending`, `benefits`, `proposing` and `locks` are what
one peer needs to decide for itself.
"""
