"""Skidpad behind the interfaces of other libraries: Gymnasium, PettingZoo, and torch's tensors.

    SkidpadEnv           gymnasium.Env: one agent of one world
    SkidpadVectorEnv     gymnasium.vector.VectorEnv: every policy row of a batch of worlds
    SkidpadParallelEnv   pettingzoo.ParallelEnv: all policy-driven agents of one world
    TorchSimulator       a Simulator whose results are tensors over the same memory

Each is loaded when it is asked for. Gymnasium and PettingZoo are the extra `gym`; without it these names raise
MissingExtraError.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from skidpad.errors import MissingExtraError

if TYPE_CHECKING:
    from skidpad.adapters.parallel import SkidpadParallelEnv
    from skidpad.adapters.single import SkidpadEnv
    from skidpad.adapters.tensors import TorchSimulator
    from skidpad.adapters.vector import SkidpadVectorEnv

__all__ = ["SkidpadEnv", "SkidpadParallelEnv", "SkidpadVectorEnv", "TorchSimulator"]

_HOMES = {
    "SkidpadEnv": "single",
    "SkidpadParallelEnv": "parallel",
    "SkidpadVectorEnv": "vector",
    "TorchSimulator": "tensors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        library = (error.name or "").split(".")[0]
        if library not in {"gymnasium", "pettingzoo"}:
            raise
        raise MissingExtraError(f"{name} needs {library}: pip install 'skidpad[gym]'") from None
    return getattr(module, name)
