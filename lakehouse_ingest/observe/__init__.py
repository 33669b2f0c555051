"""Spans, events, health and the status page. The only importer of `telemetry`."""
