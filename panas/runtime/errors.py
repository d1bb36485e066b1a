"""What can go wrong, as types: the command line turns each into one line and an exit code."""


class PanasError(Exception):
    """An error that the user can act on; its text is one line."""

    exit_code = 1


class BadInput(PanasError, ValueError):
    """The input is not usable; nothing was done. The text says what was expected, what came, what
    to do."""

    exit_code = 2


class BudgetExhausted(PanasError):
    """The privacy budget cannot pay for the next step; nothing was spent on it."""

    exit_code = 3
