"""One thread and deterministic operators, because 3-D convolutions change bits with the thread count.

A worker process calls `one_thread` before its first operator. A process that already computes something else is never
changed behind its back: there `require_one_thread` refuses.
"""

from __future__ import annotations

from typing import Any

import torch

from skidpad.errors import UsageError


def one_thread() -> None:
    """Set torch's intra- and inter-op threads to 1 and deterministic algorithms on, for the whole process.

    Raises UsageError when inter-op threads can no longer be set, which torch allows only before the first parallel
    work.
    """
    torch.set_num_threads(1)
    if torch.get_num_interop_threads() != 1:
        try:
            torch.set_num_interop_threads(1)
        except RuntimeError:
            raise UsageError("torch has already run with several inter-op threads. Use a fresh process.") from None
    torch.use_deterministic_algorithms(True)
    # Deterministic mode also fills fresh memory with NaN, which costs as much as an operator; nothing here reads it.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def thread_setting() -> dict[str, Any]:
    """What the environment block of a registration says about threads."""
    return {
        "intra_op": torch.get_num_threads(),
        "inter_op": torch.get_num_interop_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def require_one_thread() -> None:
    """Raises UsageError unless this process computes as `one_thread` arranges it."""
    found = thread_setting()
    if found != {"intra_op": 1, "inter_op": 1, "deterministic": True}:
        raise UsageError(
            f"torch computes with {found['intra_op']} intra-op and {found['inter_op']} inter-op threads, deterministic "
            f"algorithms {'on' if found['deterministic'] else 'off'}; expected 1, 1 and on, since sealed states would "
            "differ between machines. Run in a worker process, or call skidpad.streaming.threads.one_thread() first."
        )
