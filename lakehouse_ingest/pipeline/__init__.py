"""Run a pipeline: its streams, their starts, and the batches of each start."""
