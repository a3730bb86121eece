"""The data that a site stores: detached jobs until they are fetched, and the cost of every task.

Import from the modules: `records` (the records to write), `store` (the store's interface and its
rows), `database` (the store on SQLAlchemy), `reports` (usage and cost).
"""
