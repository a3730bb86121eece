"""One member of the federation: the running site."""
