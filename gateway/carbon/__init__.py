"""Carbon intensity of a site's electricity: a factor, an hourly series, or a source on the net."""
