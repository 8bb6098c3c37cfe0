"""Where runs are reported to: one package a system."""
