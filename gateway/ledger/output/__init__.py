"""Files that reports, pages and exports are written to."""
