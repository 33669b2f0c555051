"""A transform from Python: readings arrive in Celsius or in Fahrenheit, and are written in Celsius.

    python celsius.py pipeline.toml

A reading with another unit goes to the dead-letter table, with its record.
"""

import sys

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest import load_settings, run, set_aside


def in_celsius(rows: pa.Table) -> pa.Table:
    unit, degrees = rows["unit"], rows["degrees"]
    rows = set_aside(rows, pc.invert(pc.is_in(unit, pa.array(["C", "F"]))), "the unit is neither C nor F")
    celsius = pc.if_else(pc.equal(unit, "F"), pc.divide(pc.subtract(degrees, 32), 1.8), degrees)
    rows = rows.set_column(rows.column_names.index("degrees"), "degrees", celsius)
    return rows.set_column(rows.column_names.index("unit"), "unit", pa.array(["C"] * len(rows)))


if __name__ == "__main__":
    batches = run(load_settings(sys.argv[1]), transform=in_celsius, until_latest=True)
    print(f"{batches} batches committed")
