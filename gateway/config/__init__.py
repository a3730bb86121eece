"""The configuration: one module for each table of TOML, read into frozen values."""
