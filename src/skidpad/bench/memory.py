"""What the kernel says of this process's memory: how much of some files it maps, and what is its own.

The proportional set size (PSS) of a page is its size over the number of processes that have it: summed over processes
it counts every page once. Linux only; elsewhere everything here is None.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_SMAPS = Path("/proc/self/smaps")


class Mapped(NamedTuple):
    """Mappings of the files of one folder in this process, in bytes: address space, resident, proportional."""

    size: int
    resident: int
    proportional: int


def mapped(folder: Path) -> Mapped | None:
    """How much of the files under a folder this process maps."""
    if not _SMAPS.exists():
        return None
    prefix, inside = f"{folder.resolve()}/", False
    total = {"Size:": 0, "Rss:": 0, "Pss:": 0}
    for line in _SMAPS.read_text(errors="replace").splitlines():
        field, _, rest = line.partition(" ")
        if not field.endswith(":"):  # the head of a mapping: addresses, permissions, offset, device, inode, path
            inside = line.split(maxsplit=5)[-1].startswith(prefix)
        elif inside and field in total:
            total[field] += 1024 * int(rest.split()[0])
    return Mapped(total["Size:"], total["Rss:"], total["Pss:"])


def own_bytes() -> int | None:
    """Memory of this process that is no file: heaps and stacks."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return 1024 * int(fields["RssAnon"].split()[0])
