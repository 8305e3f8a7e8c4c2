"""How bytes cross one link between two peers: opening, repair, pacing and protection."""
