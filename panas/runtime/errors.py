"""What can go wrong, as types: the command line turns each into one line and an exit code.

`BadInput` is raised once, at the boundary, and says what was expected, what came and what to do.
`BudgetExhausted` is raised before the data is touched that the budget cannot pay for.
"""


class PanasError(Exception):
    """An error that the user can act on; its text is one line."""

    exit_code = 1


class BadInput(PanasError, ValueError):
    """The input is not usable; nothing was done."""

    exit_code = 2


class BudgetExhausted(PanasError):
    """The privacy budget cannot pay for the next step; nothing was spent on it."""

    exit_code = 3
