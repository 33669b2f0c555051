"""Where a start goes on, and the blockers that only a person can decide."""
