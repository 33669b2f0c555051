"""Compares types: which takes the values of another, and which a column can be widened to without touching a file."""

from enum import Enum, auto

from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType

# Digits that hold every value of the type.
_DIGITS = {IntegerType(): 10, LongType(): 19}


class Relation(Enum):
    """How a wanted type compares with the column's."""

    SAME = auto()
    NARROWER = auto()  # each of its values fits
    WIDER = auto()  # Iceberg reads existing files as the wanted type
    OTHER = auto()


def relation(there: IcebergType, wanted: IcebergType) -> Relation:
    """Compare two types that are neither struct, list nor map."""
    if there == wanted:
        return Relation.SAME
    if _promotable(there, wanted):
        return Relation.WIDER
    return Relation.NARROWER if _promotable(wanted, there) or _fits(wanted, there) else Relation.OTHER


def _promotable(old: IcebergType, new: IcebergType) -> bool:
    match old, new:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return old.scale == new.scale and old.precision < new.precision
    return False


def _fits(small: IcebergType, large: IcebergType) -> bool:
    """Whether the large type holds every value exactly, though Iceberg can't read existing files as that type."""
    match small, large:
        case IntegerType(), DoubleType():
            return True
        case ((IntegerType() | LongType()), DecimalType()):
            return large.precision - large.scale >= _DIGITS[small]
        case DecimalType(), DecimalType():
            return small.scale <= large.scale and small.precision - small.scale <= large.precision - large.scale
    return False
