"""Frames between two parties: transports, the handshake, resumable sessions."""
