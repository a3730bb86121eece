"""The client's connection to a gateway: jobs as streams, results, progress."""
