"""A file layer whose k-th call fails, for every k: what writers are tested against."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

MOST_CALLS = 1000
CALLS = ("open", "fsync", "replace", "link", "unlink", "close")


class FailingFiles:
    """Makes the k-th file call of this process fail with ENOSPC, counting from 0; `failed` says whether it came to it.

    `unlink` and `close` are counted but go through first: a system that cannot even remove a file cannot be tidied.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, k: int) -> None:
        self.left = k
        self.failed = False
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrapped(getattr(os, name), name))

    def _wrapped(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & (os.O_CREAT | os.O_DIRECTORY):
                return call(*args, **kwargs)  # reading is another story
            self.left -= 1
            if self.left != -1 or name in ("unlink", "close"):
                return call(*args, **kwargs)
            self.failed = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return wrapped


def every_fault(work: Callable[[], None], stride: int = 1) -> Iterator[bool]:
    """Runs `work` once per file call, or every `stride`-th, with that call failing, then once without; yields whether
    it raised OSError."""
    for k in range(0, MOST_CALLS, stride):
        with pytest.MonkeyPatch.context() as patch:
            fault = FailingFiles(patch, k)
            try:
                work()
                raised = False
            except OSError:
                raised = True
        yield raised
        if fault.left >= 0:
            return
    raise AssertionError(f"{MOST_CALLS} file calls were not enough")
