"""From records to rows. A stage is silent and has no effect on the outside world."""
