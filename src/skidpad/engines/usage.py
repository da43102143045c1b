"""What a worker holds, as Linux tells it: a driver that leaks shows here long before the machine runs out."""

from __future__ import annotations

import os
import resource
from pathlib import Path

PROC = Path("/proc")
PAGE = resource.getpagesize()


def can_tell() -> bool:
    """Whether this system says what processes hold."""
    return (PROC / "self" / "statm").exists()


def memory_of_group(group: int) -> int:
    """Bytes that the processes of a group hold for themselves: resident, without files that are mapped."""
    total = 0
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # The name, in parentheses, may hold anything; the group is the third field after it.
            if int((folder / "stat").read_text().rpartition(")")[2].split()[2]) == group:
                _, resident, shared = map(int, (folder / "statm").read_text().split()[:3])
                total += (resident - shared) * PAGE
        except (OSError, ValueError):  # it has ended meanwhile
            continue
    return total


def files_of(pid: int) -> int:
    """Open descriptors of a process; 0 where nobody can tell."""
    try:
        return len(os.listdir(PROC / str(pid) / "fd"))
    except OSError:
        return 0


def most_files() -> int:
    """How many a process may open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
