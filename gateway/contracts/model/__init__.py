"""The data of contracts, on both sides, and what their messages mean."""
