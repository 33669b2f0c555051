"""Names as Spark's SQL reads them."""

from lakehouse_ingest.settings.spark_options import CATALOG

LAKE = CATALOG.rpartition(".")[2]  # the catalog's name within Spark; never seen outside this process


def spark_name(table: str) -> str:
    """A table of the catalog, by its name in Spark."""
    return ".".join(quoted(part) for part in (LAKE, *table.split(".")))


def quoted(name: str) -> str:
    """Quotes a name for Spark's parser, whatever is in it: in SQL, in a schema, as a column or a table."""
    return "`" + name.replace("`", "``") + "`"
