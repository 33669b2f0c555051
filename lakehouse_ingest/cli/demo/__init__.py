"""What `lakehouse-ingest demo` is made of, beside the pipeline itself: events, a screen, the proof, the report."""
