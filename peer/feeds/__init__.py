"""What a root publishes: where its bytes come from, where packets begin and end, and how they are numbered."""
