"""The wire: listeners, sessions that others dial, sessions that we dial."""
