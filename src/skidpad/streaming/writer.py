"""The learned write policy: a small network that predicts what each action gains, and a price on units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from skidpad.streaming.policies import FEATURES, Action, Feedback

HIDDEN = 32


class Writer(torch.nn.Module):
    """(N, 24) features of `policies.FEATURES` to (N, 4) advantages over OFF, in the order of `Action`; higher is
    better. 1,988 parameters, 1,920 multiply-adds."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(len(FEATURES), HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, len(Action)),
        )

    def forward(self, features: Tensor) -> Tensor:
        advantages: Tensor = self.layers(features)
        return advantages

    @property
    def units(self) -> int:
        """Multiply-adds of one choice."""
        return sum(layer.weight.numel() for layer in self.layers if isinstance(layer, torch.nn.Linear))


@dataclass(eq=False)
class Learned:
    """The feasible action with the largest advantage - price x units; ties go to the cheaper."""

    network: Writer
    price: float
    name: str = "LEARNED"
    fixed: bool = False
    keeps_arrivals: bool = False

    @property
    def units(self) -> int:
        return self.network.units

    def choose(self, feedback: Feedback, feasible: Sequence[Action]) -> Action:
        """See above."""
        device = next(self.network.parameters()).device
        features = torch.tensor([list(feedback.features.values())], dtype=torch.float32, device=device)
        advantages = dict(zip(Action, self.network(features)[0].tolist(), strict=True))
        return max(feasible, key=lambda action: advantages[action] - self.price * feedback.units[action])
