"""The ledger of an episode: declared units decide, FLOPs and seconds describe.

Declared units are constants known at reset, so whether an action still fits never depends on what is to come. Fixed
costs and the queries are reserved at reset; what is left is for writing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skidpad.errors import RefusedError, UsageError

LABEL = "declared operator work, not FLOPs"
_FIELDS = ("count", "units", "flops", "seconds", "peak_bytes", "touched_voxels")
OPERATIONS = ("encode", "feedback_render", "policy", "fuse", "complete", "query_render")


@dataclass(frozen=True)
class BudgetProtocol:
    """max_units: the most declared units an episode may use, queries included. Raises UsageError unless it is a finite
    number above 0."""

    max_units: float = 1e12

    def __post_init__(self) -> None:
        value = self.max_units
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise UsageError(f"max_units = {value!r}: give a finite budget; 1e12 binds nothing at this size.")


@dataclass
class Account:
    """What one operation has used."""

    count: int = 0
    units: int = 0
    flops: int = 0
    seconds: float = 0.0
    peak_bytes: int | None = None
    touched: int = 0


@dataclass
class Ledger:
    """Units of an episode.

    costs      declared units of one call, by operation
    max_units  the limit
    """

    costs: Mapping[str, int]
    max_units: float
    accounts: dict[str, Account] = field(default_factory=lambda: {name: Account() for name in OPERATIONS})
    reserved: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OPERATIONS, 0))

    def reserve(self, operation: str, count: int) -> None:
        """Set calls aside. Raises RefusedError, saying how much is needed, when they do not fit."""
        self.reserved[operation] += count
        if self.remaining < 0:
            need = self.max_units - self.remaining
            raise RefusedError(
                f"max_units = {self.max_units:,.0f}: the episode needs at least {need:,.0f} units before anything is "
                f"written ({operation} is the first that does not fit). Give it a larger budget."
            )

    @property
    def spent(self) -> int:
        """Units used so far."""
        return sum(account.units for account in self.accounts.values())

    @property
    def remaining(self) -> float:
        """Units that are neither used nor reserved."""
        held = sum(self.costs[name] * count for name, count in self.reserved.items())
        return self.max_units - self.spent - held

    def record(
        self,
        operation: str,
        count: int = 1,
        *,
        flops: int = 0,
        seconds: float = 0.0,
        peak_bytes: int | None = None,
        touched: int = 0,
    ) -> int:
        """Book calls, out of the reservation where there is one; returns their units.

        Raises RefusedError when they are above what is left.
        """
        units = self.costs[operation] * count
        kept = min(self.reserved[operation], count)
        if self.costs[operation] * (count - kept) > self.remaining:
            raise RefusedError(
                f"{operation} needs {units:,} units, {self.remaining:,.0f} of {self.max_units:,.0f} are left."
            )
        self.reserved[operation] -= kept
        account = self.accounts[operation]
        account.count += count
        account.units += units
        account.flops += flops
        account.seconds += seconds
        account.touched += touched
        if peak_bytes is not None:
            account.peak_bytes = max(peak_bytes, account.peak_bytes or 0)
        return units

    def report(self) -> dict[str, Any]:
        """The ledger as plain JSON values."""
        operations = {
            name: {
                "count": account.count,
                "units": account.units,
                "flops": account.flops,
                "seconds": account.seconds,
                "peak_bytes": account.peak_bytes,
                "touched_voxels": account.touched,
            }
            for name, account in self.accounts.items()
        }
        return {"label": LABEL, "max_units": self.max_units, "units": self.spent, "operations": operations}

    def to_json(self) -> dict[str, Any]:
        """Everything needed to go on with it."""
        return {"costs": dict(self.costs), "reserved": dict(self.reserved), "report": self.report()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ledger:
        """The inverse of `to_json`."""
        report = value["report"]
        accounts = {name: Account(*(entry[key] for key in _FIELDS)) for name, entry in report["operations"].items()}
        return cls(dict(value["costs"]), report["max_units"], accounts, dict(value["reserved"]))
