"""Errors of limits (RYN6xx) and budgets (RYN522)."""

from __future__ import annotations

from reyn.errors.base import ReynError
from reyn.errors.runs import JournalError


class LimitError(ReynError):
    """A limit stopped the run, or cannot be changed as requested."""

    exit_code = 3


class LimitUnknown(LimitError):
    """The limit to raise does not exist, or the new value is not larger than the current one."""

    code = "RYN601"
    hint = "Name the limit that stopped the run, and a larger value."
    exit_code = 2


class BudgetExceeded(LimitError, JournalError):
    """A reservation exceeds the cap of a budget, so the journal does not store it. The run stops before the call.

    Attributes:
        account: The account.
        limit: The limit to raise.
        cap: Its value.
        used: What was charged to the account.
        reserved: What other calls in progress have reserved.
        needed: What the call could use.
    """

    code = "RYN522"
    hint = "Raise the limit, or wait until the next day if it is a budget of the day."

    def __init__(self, account: str, limit: str, cap: int, used: int, reserved: int, needed: int) -> None:
        super().__init__(
            f"account `{account}`: {used} + {reserved} reserved + {needed} exceed `{limit}`, which is {cap}"
        )
        self.account = account
        self.limit = limit
        self.cap = cap
        self.used = used
        self.reserved = reserved
        self.needed = needed
