"""The books in the formats that other programs read: FOCUS 1.2, OGF usage records, CAR, APEL.

One module per format, each a pure function from rows to pieces of text, one after the other: an
export of millions of records needs no more memory than one of ten. The exceptions are corrections
and APEL's months, which are read whole. docs/exports.md explains the mapping of each column.
"""
