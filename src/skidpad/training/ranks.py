"""Several processes learning together: each has worlds of its own, and sums go round.

Everything that is shared is a sum: of gradients, of counts, of squares. One process is the case in which nothing has
to be sent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from skidpad.errors import UsageError


@dataclass(frozen=True)
class Ranks:
    """This process among those that learn together."""

    number: int = 0
    count: int = 1

    @staticmethod
    @contextmanager
    def met(device: torch.device) -> Iterator[Ranks]:
        """The ranks that `torchrun` started, which part again in the end; one where nothing did. Raises UsageError
        where its variables contradict each other."""
        try:
            number, count = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        except ValueError as error:
            raise UsageError(f"RANK and WORLD_SIZE must be numbers, as torchrun sets them ({error}).") from None
        if not 0 <= number < count:
            raise UsageError(f"RANK is {number} of WORLD_SIZE {count}; start with torchrun, which sets both.")
        if count > 1:
            torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        try:
            yield Ranks(number, count)
        finally:
            if count > 1:
                torch.distributed.destroy_process_group()

    @property
    def first(self) -> bool:
        """Whether this is the rank that evaluates, logs and writes (E28)."""
        return self.number == 0

    def total(self, values: Sequence[float]) -> list[float]:
        """Sums over all ranks, in f64."""
        if self.count == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        torch.distributed.all_reduce(tensor)
        return [float(value) for value in tensor]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Gradients summed over all ranks, in place."""
        if self.count == 1:
            return
        gradients = [one.grad for one in parameters if one.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        torch.distributed.all_reduce(flat)
        for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def share(self, tensors: Iterable[Tensor]) -> None:
        """The tensors of rank 0, everywhere."""
        for tensor in tensors if self.count > 1 else ():
            torch.distributed.broadcast(tensor, 0)

    def of_first(self, value: Any) -> Any:
        """What rank 0 has, everywhere; any value that can be pickled."""
        if self.count == 1:
            return value
        found = [value]
        torch.distributed.broadcast_object_list(found, 0)
        return found[0]

    def gathered(self, value: Any) -> list[Any]:
        """What each rank has, in order of ranks, on rank 0; elsewhere an empty list."""
        if self.count == 1:
            return [value]
        found: list[Any] = [None] * self.count
        torch.distributed.gather_object(value, found if self.first else None)
        return found if self.first else []

    def agreed(self, asked: bool) -> bool:
        """Whether any rank asks: all hear it, in the same place."""
        return self.total([float(asked)])[0] > 0
