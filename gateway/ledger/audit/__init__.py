"""Proofs that the books are right: `gridfed audit`."""
