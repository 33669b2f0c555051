"""The stages turn records into rows. A stage logs nothing and has no effect on the outside world."""
