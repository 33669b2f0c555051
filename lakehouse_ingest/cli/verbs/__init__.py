"""One file a verb: each is a function that takes settled values and does one thing."""
