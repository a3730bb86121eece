"""The command line: a module for each kind of verb, thin over the client and the site."""
