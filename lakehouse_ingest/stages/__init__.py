"""The stages turn records into rows, in Arrow columns, within a task.

A stage knows neither Spark nor Java, logs nothing and has no effect on the outside world.
"""
