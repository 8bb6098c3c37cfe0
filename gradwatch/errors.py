"""The errors that gradwatch raises to its callers; each message says what, where and what to do."""


class GradwatchError(Exception):
    """Base of all errors of ours; `str(error)` is meant to be read by a user."""


class UnreadableLogError(GradwatchError):
    """A file or folder holds no training log that any importer can read."""


class StoreError(GradwatchError):
    """The store cannot be opened, or was asked for something that it does not hold."""


class BusyStoreError(StoreError):
    """Another process has the store open."""


class NoStoreError(StoreError):
    """The folder has no store."""


class SettingsError(GradwatchError):
    """A setting is wrong: said before the first step, never later."""


class RefusedError(GradwatchError):
    """A collector refused a request for good: sending it again cannot help. `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class UnavailableError(GradwatchError):
    """A collector cannot be reached, or is too busy: send it again, after `retry_after` seconds where it said so."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
