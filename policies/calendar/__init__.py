"""Time by the calendar: business days, cron, hours, weeks, periods."""
