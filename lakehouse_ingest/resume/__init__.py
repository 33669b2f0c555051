"""Where a start goes on, and what it must not decide by itself."""
