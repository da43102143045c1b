"""The torch actor-critic: a small MLP or GRU over one observation row, sized by its checkpoint's metadata.

Importing this module imports torch; everything that can do without imports it inside the function that needs it.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from skidpad.policies.checkpoint import NetworkShape


class ActorCritic(nn.Module):
    """Observation rows to action parameters and a value.

    A discrete head gives one logit per entry of the action table, a continuous one the mean of a Gaussian squashed
    into [-1, 1], whose log standard deviation is a parameter of the network.
    """

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        sizes = [shape.observation, *shape.hidden]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.Tanh()]
        self.encoder = nn.Sequential(*layers)
        self.memory = nn.GRUCell(sizes[-1], shape.gru) if shape.gru else None
        width = shape.gru or sizes[-1]
        self.actor = nn.Linear(width, shape.actions)
        self.critic = nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.full((shape.actions,), -0.5)) if shape.head == "continuous" else None

    def forward(self, observation: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Action parameters, value and the memory after this step.

        observation  (B, D)  f32
        memory       (B, H)  f32   None for a network without memory
        returns      (B, A) f32, (B,) f32, (B, H) f32 or None
        """
        features = self.encoder(observation)
        if self.memory is not None:
            features = memory = self.memory(features, memory)
        out = self.actor(features)
        if self.log_std is not None:
            out = torch.tanh(out)
        return out, self.critic(features).squeeze(-1), memory
