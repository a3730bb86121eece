"""What `gridfed audit` proves, one kind of proof a module: each yields where it does not hold."""
