"""How far data may change a table: one rule for the table, and others for single columns.

| rule     | a field that the table lacks     | a wider type                     | a type that can't be had         |
|----------|----------------------------------|----------------------------------|----------------------------------|
| `evolve` | becomes a column                 | the column is widened            | the field is set aside           |
| `widen`  | is set aside                     | the column is widened            | the field is set aside           |
| `freeze` | is set aside                     | the field is set aside           | the field is set aside           |
| `refuse` | rows that hold it are refused    | rows that hold it are refused    | rows that hold it are refused    |

A new field beyond a limit is set aside, whatever the rule. No rule drops, narrows, renames or moves anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Rule(StrEnum):
    """How far a table follows the data, or a column with everything inside it."""

    EVOLVE = "evolve"
    WIDEN = "widen"
    FREEZE = "freeze"
    REFUSE = "refuse"

    @property
    def widens(self) -> bool:
        """Whether a column may take more than now: a wider type, or rows without a value."""
        return self in {Rule.EVOLVE, Rule.WIDEN}


@dataclass(frozen=True)
class Contract:
    """A rule for the table, others for single columns, and limits for a table and for a plan.

    `columns` is by dotted path (`place.lat`, `items.element.sku`, `tags.value`); the nearest path counts. Unless
    `partitions` is `evolve`, a table that is partitioned in another way is refused.
    """

    rule: Rule = Rule.EVOLVE
    columns: Mapping[str, Rule] = field(default_factory=dict)
    partitions: Rule = Rule.REFUSE
    max_columns: int | None = 1_000  # named fields at all depths
    max_depth: int | None = 16  # length of a path, with `element`, `key` and `value`
    max_new: int | None = None  # named fields that one plan may add

    def __post_init__(self) -> None:
        """Accept a rule by its name; a ValueError names an unknown one."""
        object.__setattr__(self, "rule", Rule(self.rule))
        object.__setattr__(self, "partitions", Rule(self.partitions))
        object.__setattr__(self, "columns", {path: Rule(rule) for path, rule in self.columns.items()})

    def rule_of(self, *path: str) -> Rule:
        """Give the rule of the column with this path, or else of the nearest column around it."""
        known = (".".join(path[:length]) for length in range(len(path), 0, -1))
        return next((self.columns[each] for each in known if each in self.columns), self.rule)


FOLLOW = Contract()


def within(path: str, of: str) -> bool:
    """Whether the path is `of` or lies inside it."""
    return path == of or path.startswith(f"{of}.")
