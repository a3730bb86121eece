"""How clean a site's electricity is now: a factor, a series by the hour, or somebody who tells."""
