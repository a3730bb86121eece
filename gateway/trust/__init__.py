"""Who we are, whom we know, and what each may do: keys, trust book, rules, tokens."""
