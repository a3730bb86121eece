"""Run by Alembic: apply the migrations on the connection and transaction that it is given."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
