"""The live page: a small server under trio, and what the browser shows."""
