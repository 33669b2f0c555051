"""Verifying: what the tables, the batch log and the source say, side by side. Nothing is taken from memory."""
