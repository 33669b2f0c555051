"""What data may do to a table: said once for the table, and otherwise for single columns.

| rule     | a field that the table lacks     | a wider type                     | a type that can't be had         |
|----------|----------------------------------|----------------------------------|----------------------------------|
| `evolve` | becomes a column                 | the column is widened            | the field is set aside           |
| `widen`  | is set aside                     | the column is widened            | the field is set aside           |
| `freeze` | is set aside                     | the field is set aside           | the field is set aside           |
| `refuse` | rows that hold it are refused    | rows that hold it are refused    | rows that hold it are refused    |

Beyond a limit a new field is set aside, whatever the rule. By no rule is anything dropped, narrowed, renamed or moved.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Rule(StrEnum):
    """How far a table, or a column with all that is in it, follows the data."""

    EVOLVE = "evolve"
    WIDEN = "widen"
    FREEZE = "freeze"
    REFUSE = "refuse"

    @property
    def widens(self) -> bool:
        """Whether a column may take more than it does now: a wider type, or no value at all."""
        return self in {Rule.EVOLVE, Rule.WIDEN}


@dataclass(frozen=True)
class Contract:
    """A rule for the table, others for single columns, and limits to what one table or one batch may bring.

    `columns` is by dotted path (`place.lat`, `items.element.sku`, `tags.value`), the nearest one holds. `partitions`
    other than `evolve`: a table that is partitioned in another way is refused.
    """

    rule: Rule = Rule.EVOLVE
    columns: Mapping[str, Rule] = field(default_factory=dict)
    partitions: Rule = Rule.REFUSE
    max_columns: int | None = 1_000  # named fields at all depths
    max_depth: int | None = 16  # of a path, with `element`, `key` and `value`
    max_new: int | None = None  # named fields that one plan may add

    def __post_init__(self) -> None:
        """Take a rule's name for the rule; a ValueError names one that is not known."""
        object.__setattr__(self, "rule", Rule(self.rule))
        object.__setattr__(self, "partitions", Rule(self.partitions))
        object.__setattr__(self, "columns", {path: Rule(rule) for path, rule in self.columns.items()})

    def rule_of(self, *path: str) -> Rule:
        """Give the rule of the column to which these names lead, or else that of the nearest one that it is in."""
        known = (".".join(path[:length]) for length in range(len(path), 0, -1))
        return next((self.columns[each] for each in known if each in self.columns), self.rule)


FOLLOW = Contract()


def within(path: str, of: str) -> bool:
    """Whether the path is `of`, or leads into it."""
    return path == of or path.startswith(f"{of}.")
