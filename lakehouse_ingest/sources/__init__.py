"""Where records come from; one file each. So far there is one, and `pipeline.py` names it."""
