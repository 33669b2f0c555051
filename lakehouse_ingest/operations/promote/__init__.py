"""Promoting: a field that was rescued becomes a column of its own, and the rows that are there get their values."""
