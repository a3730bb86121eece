"""What all tables have in common: their version, their metadata, the type of texts."""

from typing import Final

from sqlalchemy import MetaData, Text

# The newest migration. A database at this version is opened without loading Alembic.
SCHEMA_VERSION: Final = "0021"

# Ordered by code points, in PostgreSQL as in SQLite, in any locale: reports must not differ.
TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")

metadata = MetaData()
