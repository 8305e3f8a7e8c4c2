"""One packet: its shape or its tree, one walk, one look into the index, and what is left to evaluate."""
