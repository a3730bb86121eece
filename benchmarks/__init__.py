"""Speed and memory, as ratios within one run; see README.md."""
