"""A transform from Python: readings arrive in Celsius or in Fahrenheit, and are written in Celsius.

    python celsius.py pipeline.toml

A reading with another unit goes to the dead-letter table, with its record.
"""

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse_ingest import load_settings, run, set_aside


def in_celsius(rows: DataFrame) -> DataFrame:
    data = F.col("_data")
    degrees = F.when(data["unit"] == "F", (data["degrees"] - 32) / 1.8).otherwise(data["degrees"])
    rows = set_aside(rows, ~F.coalesce(data["unit"].isin("C", "F"), F.lit(False)), "the unit is neither C nor F")
    return rows.withColumn("_data", data.withField("degrees", degrees).withField("unit", F.lit("C")))


if __name__ == "__main__":
    batches = run(load_settings(sys.argv[1]), transform=in_celsius, until_latest=True)
    print(f"{batches} batches committed")
