"""Hooks that attach gradwatch to training loops."""
