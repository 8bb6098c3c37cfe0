"""Engines: ways to measure each role's gradient within the ordinary backward pass."""
