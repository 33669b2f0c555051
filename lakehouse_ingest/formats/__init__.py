"""How a record's bytes become fields; one file each. So far there is one, and `batch.py` and `planning.py` name it."""
