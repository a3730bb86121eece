"""Small changes to the product, one at a time, and whether a test notices: see README.md."""
