"""What a table should look like, as values."""
