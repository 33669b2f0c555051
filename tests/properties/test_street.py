"""The law of accounting on real tables: crashes anywhere, other batches and other settings lose and double nothing.

What is real in these stories, and what is not: see `tests/services/mortal_worlds.py`.
"""

import os
import random
from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.services.memory import HOLE
from tests.services.mortal_worlds import (
    ALL,
    CRASHES,
    DEAD,
    RECORD,
    REFUSED,
    UNANSWERED,
    Effect,
    Judgement,
    Land,
    Trouble,
    World,
    Worlds,
    event,
    worlds,
)
from tests.stages.given import Value

__all__ = ["worlds"]  # a fixture

# An example takes a second or two: each is drawn from a seed, for small ones tell little; none is made smaller.
RARE = settings(
    max_examples=int(os.environ.get("LAKEHOUSE_TEST_STORIES", "15")),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
EFFECTS = {
    ("add columns to", "known"),
    ("create", "new_1"),
    ("open", "new_1"),
    ("register", RECORD),
    ("read", "first pass"),
    ("read", "next pass"),
    ("write", DEAD),
    *(("publish", table) for table in ("known", "new_1", DEAD)),
    ("record", RECORD),
}


def round_of(number: int) -> list[Value]:
    """A table that is known gets a column, another one is made, and some records can't land."""
    known = [event("known", n=n, **{f"column_{number}": n}) for n in range(3)]
    return [*known, event(f"new_{number}", n=1), event("known", n="text"), event(None, n=2), "{", HOLE]


def story_of(dice: random.Random) -> list[Land | Trouble]:
    rounds = [(trouble_of(dice), land_of(dice)) for _ in range(3)]
    return [item for pair in rounds for item in pair]


def trouble_of(dice: random.Random) -> Trouble:
    how = dice.choice([CRASHES, CRASHES, REFUSED, UNANSWERED])
    # A batch publishes once for each table, and the dead letters.
    of, most = dice.choices([("publish", 4), ("read", 5), ("", 15)], [5, 2, 3])[0]
    after = dice.randint(0, most)
    return Trouble(how, after=after, of=of, then=judgement_of(dice))


def judgement_of(dice: random.Random) -> Judgement:
    return Judgement(
        keep_types=dice.choice([None, "^(a|b)$"]),
        on_error=dice.choice(["log", "log", "log", "ignore", "ignore", "raise"]),
        together=dice.random() < 0.5,
        hints=dice.choice([{}, {"x": "long"}]),
        max_tables=dice.choice([100, 100, 2]),
        publish=dice.choice(["branch", "branch", "direct"]),
    )


def land_of(dice: random.Random) -> Land:
    return Land([value_of(dice) for _ in range(dice.randint(10, 25))], dice.choice([5, ALL, ALL]))


def value_of(dice: random.Random) -> Value:
    """Half of them sound; one field is null, a number or text: what it becomes depends on who comes first."""
    if dice.random() < 0.5:
        return event(dice.choice("abc"), n=1, x=dice.choice([None, 1, 2, "text"]))
    return dice.choice([event("a", n="text"), event(None, n=1), '{"type": "a"', "[]", "", None, HOLE, HOLE])


class TestBatch:
    def test_loses_and_doubles_nothing_if_killed_before_any_effect(self, worlds: Worlds) -> None:
        """One process after the other dies, each a step further in the same batch, which has grown meanwhile."""
        world = worlds()
        world.tell([Land([event("known", n=n) for n in range(20)])])
        assert world.process
        world.process.arm(None)
        world.tell([Land(round_of(0))])
        effects = [(verb, table.replace("new_0", "new_1")) for verb, table in world.process.effects]
        assert len(dict.fromkeys(effects)) == len(EFFECTS)
        assert {*effects} == EFFECTS
        for number, effect in enumerate(dict.fromkeys(effects)):
            world.die()
            world.start()
            process = world.process
            world.befall(Trouble(CRASHES, before=effect))
            world.tell([Land(round_of(1) if number == 0 else [event("known", n=1), event("new_1", n=1), "{"])])
            assert world.process is None, f"no crash before {effect}"
            assert process
            print(f"before {effect}: {process.effects}")
        world.land_all()
        world.land_all()  # killed once all was done: there is nothing more to do
        world.check()
        places = world.reader.by_pyiceberg("known"), world.reader.by_pyiceberg("new_1"), world.reader.by_pyiceberg(DEAD)
        crashes = len(EFFECTS) - 1  # that one record more for each of them came before
        assert [sum(found.values()) for found in places] == [20 + 3 + 3 + crashes, 1 + crashes, 3 + 3 + crashes]

    @RARE
    @given(st.integers(0, 10**9))
    def test_loses_and_doubles_nothing_despite_crashes_and_changed_settings(self, worlds: Worlds, seed: int) -> None:
        dice = random.Random(seed)
        world = worlds()
        world.cores, world.hasty = dice.choice([1, 2, 4]), dice.random() < 0.3
        world.judgement = judgement_of(dice)
        world.tell(story_of(dice))
        world.land_all()
        world.check()


class TestNewField:
    def effects(self, world: World, values: Sequence[Value]) -> list[Effect]:
        """Of a batch with these values, after one that has made the table."""
        world.tell([Land([event("known", n=n) for n in range(20)])])
        assert world.process
        world.process.arm(None)
        world.tell([Land(values)])
        world.check()
        found = [*dict.fromkeys(world.process.effects)]
        return [each for each in found if each[0] in ("read", "add columns to")]

    def test_that_stays_is_found_in_the_samples_and_read_once(self, worlds: Worlds) -> None:
        """The look, which reads some of the routes as a next pass does, comes before the first pass."""
        look, added, whole = ("read", "next pass"), ("add columns to", "known"), ("read", "first pass")
        values = [event("known", n=n, **({"new": n} if n > 9 else {})) for n in range(40)]
        assert self.effects(worlds(), values) == [look, added, whole]

    def test_that_no_sample_has_is_found_by_the_first_pass(self, worlds: Worlds) -> None:
        """What the look and the next pass have in common is listed once."""
        look, added, whole = ("read", "next pass"), ("add columns to", "known"), ("read", "first pass")
        values = [event("known", n=n, **({"new": n} if n == 1 else {})) for n in range(60)]
        assert self.effects(worlds(), values) == [look, whole, added]
