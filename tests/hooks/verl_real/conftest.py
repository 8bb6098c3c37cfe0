"""Tests against verl itself, which needs an environment of its own: `make verl`. Elsewhere there is nothing to collect here."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("verl") is not None else ["test_*.py"]
