"""Bytes as a message of Symphony's, and the header of frames: shared by side.py and service.py.

These three run under the Python that `soamapi` was built for, which may be as old as 3.6: they need
only the standard library and `soamapi`, and nothing of gridfed.
"""

import array
import struct

import soamapi

HEADER = struct.Struct("!cI")


class Bytes(soamapi.Message):
    """A message that is bytes."""

    def __init__(self, data: bytes = b"") -> None:
        soamapi.Message.__init__(self)
        self.data = data

    def on_serialize(self, stream: "soamapi.OutputStream") -> None:
        """Write the bytes: the API takes only arrays."""
        data = array.array("b")
        data.frombytes(self.data)
        stream.write_byte_array(data, 0, len(data))

    def on_deserialize(self, stream: "soamapi.InputStream") -> None:
        """Read the bytes."""
        self.data = bytes(stream.read_byte_array("b").tobytes())
