"""Sources in Arrow: what a task reads."""
