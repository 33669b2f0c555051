"""What a randomised test decides by, and what repeats it."""

import os
import random


class Dice(random.Random):
    """LAKEHOUSE_TEST_SEED repeats a run's decisions, though not the machine's pace."""

    def __init__(self) -> None:
        self.drawn = int(os.environ.get("LAKEHOUSE_TEST_SEED") or random.SystemRandom().randrange(10**6))
        super().__init__(self.drawn)
        print(f"\nLAKEHOUSE_TEST_SEED={self.drawn}")
