"""Logs that are still being written, read through the importers as they grow and sent to a collector."""
