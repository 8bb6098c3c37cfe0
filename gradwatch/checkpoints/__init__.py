"""Which checkpoint to keep."""
