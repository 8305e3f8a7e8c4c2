"""What an archive says: selectivity of queries, bandwidth, the fleet, and traces of meshes."""
