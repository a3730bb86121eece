"""What records come to: double entry, the journal, settlement, roll-up."""
