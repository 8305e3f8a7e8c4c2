"""What a peer shows of itself: statistics, metrics, status, traces, and the mesh seen from outside."""
