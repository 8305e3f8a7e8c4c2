"""What a demo checks: what each client must have received, what it did receive, and the totals."""
