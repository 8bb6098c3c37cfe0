"""The errors that gradwatch raises to its callers; each message says what, where and what to do."""


class GradwatchError(Exception):
    """Base of all errors of ours; `str(error)` is meant to be read by a user."""


class UnreadableLogError(GradwatchError):
    """A file or folder holds no training log that any importer can read."""


class StoreError(GradwatchError):
    """The store cannot be opened, or was asked for something that it does not hold."""
