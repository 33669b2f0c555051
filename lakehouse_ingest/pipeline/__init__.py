"""From settings to streams to batches."""
