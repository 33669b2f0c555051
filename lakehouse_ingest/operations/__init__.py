"""What a person does beside a run. Each verb is a function that returns a value."""
