"""The bulk transfer: how the bytes of objects go from one host to another."""
