"""Compares the columns of a table with those that are wanted."""

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from catalog.changes import Add, Describe, Evolution, Fate, FieldVerdict, Relax, Widen
from catalog.contracts import Contract, Rule, within
from catalog.fields import (
    ELEMENT,
    KEY,
    VALUE,
    Path,
    bare_text,
    columns_of,
    is_leaf,
    list_of,
    map_of,
    named,
    parts_of,
    paths_in,
    struct_of,
    word_for,
)
from catalog.specs import TableState
from catalog.type_widening import Relation, relation
from catalog.typenames import type_text

_FOLLOWS_NO_MORE = {
    Rule.WIDEN: "the contract only widens",
    Rule.FREEZE: "the contract freezes it",
    Rule.REFUSE: "the contract refuses it",
}
_TAKEN = "to Iceberg its name is the path of another field"
_PARTITION = "a partition field of the table has its name, or had it"


class _Why(str):
    """The reason why there is no type or field; stands in its place."""

    __slots__ = ()


class Comparison:
    """One walk over the table's columns and the wanted ones, side by side."""

    def __init__(self, current: TableState, contract: Contract) -> None:
        self.changes: list[Evolution] = []
        self.verdicts: list[FieldVerdict] = []
        self.lacking: list[str] = []
        self._contract, self._identifier, self._format = contract, current.identifier, current.format_version
        # Elements, keys and values included: Iceberg allows no two parts of a table with the same dotted path.
        self._paths = [path for path, _ in parts_of(struct_of(current.columns), ()) if path]
        self._texts = {".".join(each) for each in self._paths}
        self._partitions = current.partition_names
        self._named = sum(1 for _ in paths_in(struct_of(current.columns), ()))
        self._added = 0

    # -- columns that the table has -----------------------------------------------------------------------

    def struct(self, there: StructType, wanted: StructType, path: Path) -> None:
        known = {each.name: each for each in there.fields}
        beside = {each.name.casefold(): each.name for each in there.fields}
        fields = self._each_once(wanted, path)
        for field in fields:
            inside = (*path, field.name)
            if field.name in known:
                self._known(known[field.name], field, inside)
            elif isinstance(made := self._new(field, inside, beside), NestedField):
                self.changes.append(Add(".".join(path), *columns_of(StructType(made))))
        missing = known.keys() - {each.name for each in fields}
        self.lacking += [".".join((*path, name)) for name, each in known.items() if each.required and name in missing]

    def _each_once(self, wanted: StructType, path: Path) -> list[NestedField]:
        """Give the fields; of several with one name only the first."""
        found: dict[str, NestedField] = {}
        for field in wanted.fields:
            if field.name in found:
                self._say((*path, field.name), Fate.SET_ASIDE, field.field_type, None, "it appears twice")
            found.setdefault(field.name, field)
        return [*found.values()]

    def _known(self, there: NestedField, wanted: NestedField, path: Path) -> None:
        text = ".".join(path)
        rule = self._contract.rule_of(*path)
        old, new = there.field_type, wanted.field_type
        if wanted.doc is not None and wanted.doc != there.doc and rule is Rule.EVOLVE:
            self.changes.append(Describe(text, wanted.doc))
        if there.required and not wanted.required:
            # Iceberg requires a value in each identifier field, and so in every struct around it.
            if rule.widens and not any(within(each, text) for each in self._identifier):
                self.changes.append(Relax(text))
            else:
                self.lacking.append(text)
        match old, new:
            case StructType(), StructType():
                self._say(path, Fate.FITS, new, old)
                self.struct(old, new, path)
            case ListType(), ListType():
                self._say(path, Fate.FITS, new, old)
                self._known(old.element_field, new.element_field, (*path, ELEMENT))
            case MapType(), MapType():
                self._say(path, Fate.FITS, new, old)
                self._key(old.key_type, new.key_type, (*path, KEY))
                self._known(old.value_field, new.value_field, (*path, VALUE))
            case _:
                self._leaf(old, new, path, rule)

    def _leaf(self, old: IcebergType, new: IcebergType, path: Path, rule: Rule) -> None:
        found = _relation(old, new)
        if found in {Relation.SAME, Relation.NARROWER}:
            self._say(path, Fate.FITS, new, old)
        elif found is Relation.OTHER:
            self._say(path, _without(rule), new, old, f"{word_for(old)} can't become {word_for(new)}")
        elif rule.widens:
            self._say(path, Fate.WIDEN, new, old)
            self.changes.append(Widen(".".join(path), type_text(old), type_text(new)))
        else:
            self._say(path, _without(rule), new, old, _FOLLOWS_NO_MORE[rule])

    def _key(self, old: IcebergType, new: IcebergType, path: Path) -> None:
        """A map's key keeps its type: Iceberg can't add or widen anything in it."""
        if bare_text(old) == bare_text(new) or _relation(old, new) is Relation.NARROWER:
            self._say(path, Fate.FITS, new, old)
        else:
            rule = self._contract.rule_of(*path)
            self._say(path, _without(rule), new, old, "the key of a map can't change")

    # -- new columns --------------------------------------------------------------------------------------

    def _new(self, field: NestedField, path: Path, beside: dict[str, str]) -> NestedField | _Why:
        """Give the field as it can be added; `beside` has the names next to it, by their casefolded spelling."""
        rule = self._contract.rule_of(*path)
        paths, verdicts, *counts = len(self._paths), len(self.verdicts), self._named, self._added
        made = self._why_not(field.name, path, beside, rule) or self._added_type(field.field_type, path)
        if isinstance(made, _Why):
            # The parts of it that could have been added are not added either.
            refused = rule is Rule.REFUSE or any(each.fate is Fate.REFUSE for each in self.verdicts[verdicts:])
            self._texts -= {".".join(each) for each in self._paths[paths:]}
            del self.verdicts[verdicts:], self._paths[paths:]
            self._named, self._added = counts
            self._say(path, Fate.REFUSE if refused else Fate.SET_ASIDE, field.field_type, None, made)
            return made
        beside[field.name.casefold()] = field.name
        return named(field.name, made, field.doc)

    def _why_not(self, name: str, path: Path, beside: dict[str, str], rule: Rule) -> _Why | None:
        met = beside.get(name.casefold())
        if rule is not Rule.EVOLVE:
            return _Why(_FOLLOWS_NO_MORE[rule])
        if not all(path):
            return _Why("it has no name" if not name else "a field around it has no name")
        if met is not None:
            return _Why(f"its name differs from {met} by case only")
        if "." in name and _short(path) in map(_short, self._paths):
            return _Why(_TAKEN)
        if not self._partitions.isdisjoint((".".join(path), _short(path))):
            return _Why(_PARTITION)
        return self._no_room()

    def _no_room(self) -> _Why | None:
        contract = self._contract
        if contract.max_columns is not None and self._named >= contract.max_columns:
            return _Why(f"the table has as many columns as it may: {contract.max_columns}")
        if contract.max_new is not None and self._added >= contract.max_new:
            return _Why(f"more columns at once than may be added: {contract.max_new}")
        return None

    def _added_type(self, kind: IcebergType, path: Path) -> IcebergType | _Why:
        at = len(self.verdicts)
        self._named, self._added = self._named + 1, self._added + 1
        made = self._type(kind, path)
        if not isinstance(made, _Why):
            self.verdicts.insert(at, FieldVerdict(".".join(path), Fate.ADD, bare_text(made)))
        return made

    def _type(self, kind: IcebergType, path: Path) -> IcebergType | _Why:
        """Give the type with everything in it optional, and without the fields that may not be added."""
        if why := self._misplaced(path):
            return why
        match kind:
            case StructType():
                beside: dict[str, str] = {}
                found = [self._new(each, (*path, each.name), beside) for each in self._each_once(kind, path)]
                fields = [each for each in found if isinstance(each, NestedField)]
                reasons = [each for each in found if isinstance(each, _Why)]
                return StructType(*fields) if fields else (*reasons, _Why("nothing is known of what is in it"))[0]
            case ListType():
                element = self._type(kind.element_type, (*path, ELEMENT))
                return element if isinstance(element, _Why) else list_of(named(ELEMENT, element))
            case MapType():
                key = self._whole(kind.key_type, (*path, KEY))
                value = self._type(kind.value_type, (*path, VALUE))
                if isinstance(key, _Why) or isinstance(value, _Why):
                    return key if isinstance(key, _Why) else value
                return map_of(kind.key_type, named(VALUE, value))
        return self._checked(kind)

    def _misplaced(self, path: Path) -> _Why | None:
        if self._contract.max_depth is not None and len(path) > self._contract.max_depth:
            return _Why(f"it lies deeper than fields may: {self._contract.max_depth}")
        if ".".join(path) in self._texts:
            return _Why(_TAKEN)
        self._paths.append(path)
        self._texts.add(".".join(path))
        return None

    def _whole(self, kind: IcebergType, path: Path) -> IcebergType | _Why:
        """Give a map's key, which is added whole or not at all."""
        at = len(self.verdicts)
        made = self._type(kind, path)
        lost = next((each for each in self.verdicts[at:] if each.fate is not Fate.ADD), None)
        return _Why(lost.reason) if lost else made

    def _checked(self, kind: IcebergType) -> IcebergType | _Why:
        needed = kind.minimum_format_version() if isinstance(kind, PrimitiveType) else 0
        if needed > self._format:
            return _Why(f"{kind} needs format version {needed}, and the table has {self._format}")
        return kind

    def _say(self, path: Path, fate: Fate, wanted: IcebergType, current: IcebergType | None, reason: str = "") -> None:
        there = None if current is None else bare_text(current)
        self.verdicts.append(FieldVerdict(".".join(path), fate, bare_text(wanted), there, str(reason)))


def _without(rule: Rule) -> Fate:
    return Fate.REFUSE if rule is Rule.REFUSE else Fate.SET_ASIDE


def _relation(old: IcebergType, new: IcebergType) -> Relation:
    return relation(old, new) if is_leaf(old) and is_leaf(new) else Relation.OTHER


def _short(path: Path) -> str:
    """Leave out `element` and `value`, for Iceberg finds a field in a list or map without them, too."""
    return ".".join(part for part in path if part not in {ELEMENT, VALUE})
