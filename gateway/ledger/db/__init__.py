"""The database: records, tables, the SQL between them, and migrations."""
