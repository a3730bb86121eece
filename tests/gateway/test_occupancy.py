"""A broker with windows: who gets how many slots, who must make room, and when."""
