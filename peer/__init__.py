"""The peer: joins, selects parents, routes, repairs."""
