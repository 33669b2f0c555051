"""Plan columns from what was seen in records: their types, and more of them for a table that has outgrown its own."""
