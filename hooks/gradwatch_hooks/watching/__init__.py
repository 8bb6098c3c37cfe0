"""The parts of the plain-torch watcher, one idea a file."""
