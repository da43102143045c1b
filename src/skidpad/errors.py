"""Every error Skidpad raises on purpose.

    SkidpadError
    +- UsageError                exit 2   the person can fix it; no traceback is shown
    |  +- SettingsError                   file:line, key, nearest known key
    |  +- FormatError                     file, offset or line, what was expected there
    |  +- CheckpointError                 both sides: what the file says, what the run needs
    |  +- ProtocolError                   calls in the wrong order; shapes and dtypes at a boundary
    |  +- ActionError                     world, scene, agent, step, and the value that is not an action
    |  +- AlreadyThereError               a finished thing would be overwritten, or another runner holds the folder
    |  +- MissingExtraError               one sentence ending in the install command
    +- CaseError                 exit 1   one case failed; recorded, the rest goes on
    |  +- RefusedError                    a rule of the evaluation was broken: frames, budget, weights, a choice
    +- IntegrityError            exit 3   digest, seal, chain or provenance does not hold

Each class also inherits the built-in a caller would expect, so nobody has to import this module to catch one. A
message says, in this order: what, where, what was expected, what to do.
"""

from __future__ import annotations

from collections.abc import Iterable

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTEGRITY, EXIT_INTERRUPTED = 0, 1, 2, 3, 130


class SkidpadError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = EXIT_FAILED


class UsageError(SkidpadError, ValueError):
    """Something the person can fix: input, settings, the order of calls."""

    exit_code = EXIT_USAGE


class SettingsError(UsageError):
    """A setting is unknown, of the wrong type, out of range, or contradicts another."""


class FormatError(UsageError):
    """A file is not what its format promises."""


class CheckpointError(UsageError):
    """A checkpoint does not fit the run that would load it."""


class ProtocolError(UsageError, RuntimeError):
    """A call came in the wrong order, or an array at a boundary has the wrong shape or dtype."""


class ActionError(UsageError):
    """A value handed to the simulator is not an action. `world` is the one at fault, so that the others can go on."""

    def __init__(self, message: str, *, world: int | None = None) -> None:
        super().__init__(message)
        self.world = world


class AlreadyThereError(UsageError, FileExistsError):
    """A finished thing would be overwritten, or another runner holds the folder."""


class MissingExtraError(UsageError, ImportError):
    """An optional library is absent; the message ends in the install command."""


class CaseError(SkidpadError, RuntimeError):
    """One case failed. It is recorded; the others go on. `world` is its place in the batch, where it has one."""

    def __init__(self, message: str, *, world: int | None = None) -> None:
        super().__init__(message)
        self.world = world


class RefusedError(CaseError):
    """A rule of the evaluation was broken. The case is recorded as refused, in distinction from one that crashed."""


class IntegrityError(SkidpadError, RuntimeError):
    """A digest, seal, chain or provenance does not hold."""

    exit_code = EXIT_INTEGRITY


def listed(items: Iterable[object], limit: int = 5) -> str:
    """Comma-separated items for a message, cut after `limit` with the count of the rest."""
    texts = [str(item) for item in items]
    rest = len(texts) - limit
    return ", ".join(texts[:limit]) + (f" and {rest} more" if rest > 0 else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """The fragment '; did you mean ...?' when some known name is close to `name`, else an empty string."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
