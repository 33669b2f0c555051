"""What keeps tables small while they are written to."""
