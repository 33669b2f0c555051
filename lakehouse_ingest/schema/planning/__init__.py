"""Plan columns from what was seen in records: for a new table, and for one that the records have outgrown."""
