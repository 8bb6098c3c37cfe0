"""The command line: the one place that knows every part."""

from gradwatch.cli.app import main

__all__ = ["main"]
