"""The books compared with other sites': reconciliation, disputes, payments."""
