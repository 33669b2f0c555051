"""The ledger as values: marks, keys, and the offsets of batches."""
