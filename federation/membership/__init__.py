"""Who is in the federation and alive, by gossip: pure, driven from outside."""
