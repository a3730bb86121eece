"""Orders about keys, members, rights and tokens of a site."""
