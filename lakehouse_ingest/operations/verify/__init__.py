"""Recounting: what the tables, the batch record and the broker say, put side by side. Nothing is taken from memory."""
