"""The folder behind a MapCache: files that are whole or count as absent, made by one process at a time, and never
deleted while somebody has them mapped."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from skidpad.artifacts.digests import digest_bytes
from skidpad.artifacts.files import PRIVATE_FILE, TEMPORARY, held, is_private, private_folder_problem, replace
from skidpad.errors import FormatError, IntegrityError

Thing = TypeVar("Thing")

LOCKS = 64  # lock files of a folder; two names that share one wait for each other, and nothing worse
ABANDONED_SECONDS = 3600.0


class MapFiles:
    """Files of one folder by name.

    folder        made if absent, private to this user; where that fails, every file counts as absent and no file is
                  written, with one warning
    max_disk_mib  what `prune` leaves

    `usable` is False from the first such failure on.
    """

    def __init__(self, folder: Path, max_disk_mib: float) -> None:
        self._folder = folder
        self._most = int(max_disk_mib * (1 << 20))
        self.usable = True
        problem = private_folder_problem(folder)
        if problem is not None:
            self._give_up(problem)

    def _give_up(self, reason: str) -> None:
        if self.usable:
            self.usable = False
            warnings.warn(
                f"maps are prepared anew in this process, because their cache is not usable ({reason}). Free the "
                "folder, or choose a private, writable one.",
                RuntimeWarning,
                stacklevel=3,
            )

    def map(self, name: str, opened: Callable[[Path], Thing], *, quiet: bool = False) -> Thing | None:
        """What `opened` makes of the file, or None where there is no such file, or none to be trusted: it is not a
        plain file of this user alone, or `opened` raises FormatError or IntegrityError.

        quiet  no warning with the reason: somebody may be mending the file, and it is looked at again
        """
        path = self._folder / name
        if not self.usable:
            return None
        try:
            status = path.lstat()
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode) or not is_private(status):
            if not quiet:
                warnings.warn(
                    f"{path}: is not a file of this user alone. It is made again.", RuntimeWarning, stacklevel=2
                )
            return None
        try:
            found = opened(path)
        except (FormatError, IntegrityError) as error:
            if not quiet and path.exists():
                warnings.warn(f"{error} It is made again.", RuntimeWarning, stacklevel=2)
            return None
        try:
            path.chmod(PRIVATE_FILE)  # Its change time says when it was last wanted; `_hashed` does not look at that.
        except FileNotFoundError:  # Deleted between finding and locking it; once it is locked it cannot be.
            return None
        except OSError:  # A folder that may only be read keeps no order of use.
            pass
        return found

    @contextlib.contextmanager
    def building(self, name: str) -> Iterator[None]:
        """Hold the right to write a file, waiting for whoever has it; a holder that dies loses it. Temporary files
        that one has left are removed."""
        lock = self._folder / f"lock-{int(digest_bytes(name.encode())[:8], 16) % LOCKS:02d}"
        with contextlib.ExitStack() as stack:
            try:
                if self.usable:
                    stack.enter_context(held(lock))
                    for left in self._folder.glob(f"{name}{TEMPORARY}*"):
                        left.unlink(missing_ok=True)
            except OSError as error:
                self._give_up(f"{lock}: {error.strerror}")
            yield

    def write(self, name: str, data: bytes) -> bool:
        """Put a file in place; False where that cannot be, with one warning."""
        if not self.usable:
            return False
        try:
            replace(self._folder / name, data, mode=PRIVATE_FILE)
        except OSError as error:
            self._give_up(f"{self._folder}: {error.strerror}")
            return False
        return True

    def contents(self) -> tuple[int, int]:
        """How many files there are, and their bytes."""
        files = self._listed()
        return len(files), sum(status.st_size for _, status in files)

    def _listed(self) -> list[tuple[Path, os.stat_result]]:
        """Files by last use, oldest first, without locks and temporary files."""
        found = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._folder):
                if not entry.name.startswith("lock-") and TEMPORARY not in entry.name:
                    with contextlib.suppress(OSError):
                        found.append((Path(entry.path), entry.stat(follow_symlinks=False)))
        return sorted(found, key=lambda item: (item[1].st_ctime_ns, item[0].name))

    def prune(self) -> int:
        """Delete files, oldest use first, until the rest fits; returns how many. A file that any process has mapped
        stays. Also takes away what killed writers left an hour ago."""
        if not self.usable:
            return 0
        with contextlib.suppress(OSError):
            for left in self._folder.glob(f"*{TEMPORARY}*"):
                if left.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                    left.unlink()
        files = self._listed()
        excess = sum(status.st_size for _, status in files) - self._most
        deleted = 0
        for path, status in files:
            if excess <= 0:
                break
            if _delete_unmapped(path):
                excess -= status.st_size
                deleted += 1
        return deleted


def _delete_unmapped(path: Path) -> bool:
    """Delete a file unless somebody holds a shared lock on it, as every mapping does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
