"""The caller's own memory for what a step returns: checked once, then written in place (S111)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ProtocolError, listed

Arrays = Mapping[str, NDArray[Any]]


def take_buffers(given: Mapping[str, Any], own: Arrays, steps: int | None = None) -> dict[str, NDArray[Any]]:
    """The arrays to write into: those given, else our own.

    given  name of a StepResult field -> NumPy array, or anything that shows its memory as one (a CPU torch tensor,
           shared memory through `np.frombuffer`)
    own    what each would be without
    steps  with it every given array has an axis of that length in front, one entry per step

    Raises ProtocolError for an unknown name, a wrong shape or dtype, memory that is not contiguous or not writable, and
    two arrays that overlap.
    """
    unknown = sorted(set(given) - set(own))
    if unknown:
        raise ProtocolError(f"no such result: {listed(unknown)}; a step returns {listed(list(own), len(own))}")
    taken: dict[str, NDArray[Any]] = {}
    for name, buffer in given.items():
        array = buffer if isinstance(buffer, np.ndarray) else _seen(name, buffer)
        shape = own[name].shape if steps is None else (steps, *own[name].shape)
        if array.dtype != own[name].dtype or array.shape != shape:
            raise ProtocolError(f"buffer {name} is {array.dtype} {array.shape}; {own[name].dtype} {shape} is due")
        if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
            raise ProtocolError(f"buffer {name} is not one writable, aligned stretch of memory: pass such an array")
        taken[name] = array
    names = list(taken)
    for k, name in enumerate(names):
        for other in names[:k]:
            if np.may_share_memory(taken[name], taken[other]):
                raise ProtocolError(f"buffers {other} and {name} overlap: give each memory of its own")
    return taken


def _seen(name: str, buffer: Any) -> NDArray[Any]:
    """The memory of a foreign array, not a copy of it."""
    if not hasattr(buffer, "__array__"):
        raise ProtocolError(f"buffer {name} is {type(buffer).__name__}: pass an array, or a tensor in host memory")
    array = np.asarray(buffer)
    if not np.may_share_memory(array, np.asarray(buffer)):
        raise ProtocolError(f"buffer {name} ({type(buffer).__name__}) shows no memory that could be written in place")
    return array
