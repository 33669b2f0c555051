"""Hypothesis draws anew each time, and a failure prints what repeats it. No deadline: a busy machine is no bug."""

from hypothesis import settings

settings.register_profile("drawn", print_blob=True, derandomize=False, deadline=None)
settings.load_profile("drawn")
