"""Objects: values that stay where they were made, and references to them."""
