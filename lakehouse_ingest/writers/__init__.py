"""How rows become files of a table."""
