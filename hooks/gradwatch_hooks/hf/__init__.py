"""The parts of the hooks for the Hugging Face Trainer and for TRL, one idea a file."""
