"""The proofs of `gridfed audit`, one kind per module: each yields the violations that it finds."""
