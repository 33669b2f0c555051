"""The stages in Arrow: what a task does with records, from bytes to rows. They know neither Spark nor Java."""
