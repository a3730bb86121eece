"""What a site must remember: detached jobs until they are fetched, and what every task cost.

Import from the modules: `records` (what is written), `store` (the seam and its rows),
`database` (the store on SQLAlchemy), `reports` (usage and cost).
"""
