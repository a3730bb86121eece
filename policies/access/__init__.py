"""Who may use which slots: claims, windows, entitlements, fair shares."""
