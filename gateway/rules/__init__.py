"""The rules of a site over time: versions, planned changes, import from the file."""
