"""The command line: the one place that knows every part."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line; Ctrl-C while it is being loaded ends it as it does later, without a traceback."""
    try:
        from gradwatch.cli.app import main as run  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()
