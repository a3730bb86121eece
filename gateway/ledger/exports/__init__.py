"""The books in the formats that other programs read: FOCUS 1.2, OGF usage records, CAR, APEL.

One module a format, each a pure function from rows to pieces of text, one after the other: an
export of millions of records needs no more memory than one of ten. But for what was taken back, and
APEL's months: these are read whole. docs/exports.md says what becomes of each column.
"""
