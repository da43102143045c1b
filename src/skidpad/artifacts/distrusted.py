"""Files that may be programs: opened in a process of its own, with bounded memory and time, whose answer is tensors in
our own format. The process that asks never parses them."""

from __future__ import annotations

import subprocess
import sys

from skidpad.artifacts.weights import Weights, decode_weights
from skidpad.errors import CheckpointError


def weights_from_child(
    module: str, arguments: tuple[str, ...], given: bytes, seconds: int, where: str, expected: str
) -> Weights:
    """What `python -m module *arguments` writes for `given` on its standard input.

    seconds          [s] after which it is given up
    where, expected  "<where> is no <expected>" in messages

    Raises CheckpointError with the child's last line where it fails or takes too long.
    """
    words = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(words, input=given, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise CheckpointError(f"{where}: was not read within {seconds} s, and was given up.") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"the reader ended with code {done.returncode}"
        raise CheckpointError(f"{where}: is no {expected} ({reason}).")
    return decode_weights(done.stdout, where)


def bound(memory: int, seconds: int) -> None:
    """Bounds of the child, set before it reads anything: memory [bytes] and processor time [s]."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
