"""How a kernel of this room is compiled: `@kernel`, from the one door in `artifacts/compile.py`."""

from __future__ import annotations

from skidpad.artifacts.compile import OPTIONS, kernel

__all__ = ["OPTIONS", "kernel"]
