"""What has landed, as values."""
