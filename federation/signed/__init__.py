"""Keys, and everything that travels signed: cards, adverts, grants, tokens."""
