"""Table plans as values: what a table should look like."""
