"""The error that a user can mend: its text says what was found, what was expected and what to do."""


class EspalierError(ValueError):
    """Raised for bad input, parameters or files; never for a bug of our own."""
