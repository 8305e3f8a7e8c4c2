"""The mesh machine: membership, levels, parents, children, repair. Pure; docs/mesh.md describes it."""
