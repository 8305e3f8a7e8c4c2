"""Coverage-guided fuzzing of everything that reads a stranger's bytes: `make fuzz`, and its corpus in `make test`."""
