"""What the tasks of this site's jobs have printed."""
