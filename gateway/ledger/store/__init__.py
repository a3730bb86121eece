"""The store: what the gateway asks the books, and the thread that writes."""
