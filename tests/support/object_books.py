"""Books of objects for tests of keepers: everything is free, and no record is kept."""

from gateway.objects.billing import HoldTerms
from policies.costs.holding import HoldPrice


class FreeBooks:
    """The `ObjectBooks` of a site without a price."""

    def terms(self):
        """Return the terms: free."""
        return HoldTerms(HoldPrice())

    def book(self, records):
        """Take records."""

    async def booked(self, start_at_s):
        """Return no records."""
        return {}

    def objection(self, user, scope):
        """Return no objection."""
        return ""
