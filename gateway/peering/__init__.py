"""This site among others: gossip, routing of messages, joining, trust orders."""
