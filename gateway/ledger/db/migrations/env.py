"""Entry point for Alembic: apply the migrations on the given connection and transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
