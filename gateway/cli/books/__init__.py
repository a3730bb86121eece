"""Commands about the books: reports, exports, settlement, the database."""
