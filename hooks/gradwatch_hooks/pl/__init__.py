"""The parts of the hook for Lightning, one idea a file."""
