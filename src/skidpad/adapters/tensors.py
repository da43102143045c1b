"""TorchSimulator: what a step returns, and the actions it reads, as torch tensors over the very same memory (S119)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ProtocolError
from skidpad.simulation.simulator import Simulator

if TYPE_CHECKING:
    from torch import Tensor


class TensorResult(NamedTuple):
    """StepResult in tensors: `events` (N,) i32, whose bits are those of the u32; bfloat16 rows as such."""

    obs: Tensor
    reward: Tensor
    terminal: Tensor
    truncated: Tensor
    mask: Tensor
    events: Tensor
    reward_terms: Tensor
    final_obs: Tensor | None


class TorchSimulator:
    """A simulator for learners that speak torch. A step writes into `result` in place; nothing is copied.

    simulator  what is stepped
    pinned     results and actions lie in page-locked memory, from which a GPU copies without waiting; the simulator
               writes there from now on
    result     the tensors, the same ones for ever
    actions    (N, 2) f32, (N,) i32 or (N, F) i32: where `step()` without an argument reads

    Raises ProtocolError for pinned memory on a machine without CUDA.
    """

    def __init__(self, simulator: Simulator, *, pinned: bool = False) -> None:
        import torch

        if pinned and not torch.cuda.is_available():
            raise ProtocolError("pinned memory needs a CUDA device, and torch sees none: leave `pinned` off")
        self.simulator = simulator
        rows = {
            "float32": torch.float32,
            "bfloat16": torch.bfloat16,
            "float16": torch.float16,
            "int8": torch.int8,
        }[simulator.settings.obs_dtype]
        dtypes = {"obs": rows, "final_obs": rows, "reward": torch.float32, "reward_terms": torch.float32}
        dtypes |= {"terminal": torch.bool, "truncated": torch.bool, "mask": torch.bool, "events": torch.int32}
        shown = {name: array for name, array in simulator.result._asdict().items() if array is not None}
        if pinned:
            held = {name: _locked(array.shape, array.dtype) for name, array in shown.items()}
            shown = {name: array for name, (array, _) in held.items()}
            simulator.write_to(shown)
            raw = {name: tensor for name, (_, tensor) in held.items()}
        else:
            raw = {name: torch.from_numpy(array.reshape(-1).view(np.uint8)) for name, array in shown.items()}
        tensors: dict[str, Any] = {
            name: raw[name].view(dtypes[name]).view(array.shape) for name, array in shown.items()
        }
        self.result = TensorResult(**({"final_obs": None} | tensors))
        discrete = simulator.settings.action_type == "discrete"
        shape, dtype = simulator.actions.shape(len(simulator.row_world), discrete)
        self._actions: NDArray[Any] = _locked(shape, np.dtype(dtype))[0] if pinned else np.zeros(shape, dtype)
        self.actions = torch.from_numpy(self._actions)

    def reset(self, worlds: Sequence[int] | None = None, *, anew: bool = False) -> TensorResult:
        """As `Simulator.reset`."""
        self.simulator.reset(worlds, anew=anew)
        return self.result

    def step(self, actions: Tensor | None = None) -> TensorResult:
        """As `Simulator.step`. A CPU tensor is read in place; one of another device is copied into `actions` first.

        Raises ProtocolError for a shape or dtype other than that of `actions`.
        """
        if actions is None:
            self.simulator.step(self._actions)
            return self.result
        if actions.shape != self.actions.shape or actions.dtype != self.actions.dtype:
            raise ProtocolError(
                f"actions are {actions.dtype} {tuple(actions.shape)}; due are {self.actions.dtype} "
                f"{tuple(self.actions.shape)}"
            )
        if actions.device.type == "cpu":
            self.simulator.step(actions.detach().numpy())
        else:
            self.actions.copy_(actions.detach())
            self.simulator.step(self._actions)
        return self.result


def _locked(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[NDArray[Any], Tensor]:
    """Page-locked memory as an array, and its bytes as a tensor."""
    import torch

    raw = torch.zeros(int(np.prod(shape)) * dtype.itemsize, dtype=torch.uint8, pin_memory=True)
    return raw.numpy().view(dtype).reshape(shape), raw
