"""The torch actor-critic over observation rows: an encoder for each block of rows, pooled, then a small trunk.

Rows of a block (other agents, road, signals) have no order a network should learn, so each goes through the same layer
and the block is the maximum over its rows (Qi et al. 2017, PointNet, eq. 1). Importing this module imports
torch; everything that can do without imports it inside the function that needs it.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from skidpad.policies.shape import NetworkShape

NEAR = 8.0
ROWS_AT_ONCE = 256


def near(seen: Tensor) -> Tensor:
    """Features (..., F) beside themselves with a finer scale that ends, (..., 2 F).

    Layouts divide by the farthest that can be seen, 60 m and more; what decides whether a car touches a kerb is a
    tenth of a metre, which such a number hardly shows. tanh(8 x) does, out to an eighth of the range.
    """
    return torch.cat([seen, torch.tanh(NEAR * seen)], -1)


class RowEncoder(nn.Module):
    """A block of rows (B, R, F) as (B, E): two layers on each row, and the maximum over the rows.

    The first layer sees what the agent knows of itself beside each row: whether another car is a danger depends on how
    fast one drives oneself. Its part of the layer is computed once per agent, not once per row.
    """

    def __init__(self, features: int, known: int, width: int) -> None:
        super().__init__()
        self.row = nn.Linear(2 * features, width)
        self.own = nn.Linear(2 * known, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, rows: Tensor, known: Tensor) -> Tensor:
        """(B, R, F) f32 and near(known), (B, 2 K) f32, to (B, E) f32."""
        out = self.out(torch.relu(self.row(near(rows)) + self.own(known)[:, None]))
        # Without a gradient nobody asks where the maxima were, which is several times faster.
        return torch.relu(out.max(1).values if torch.is_grad_enabled() else out.amax(1))


class ActorCritic(nn.Module):
    """Observation rows to action parameters and a value.

    A discrete head gives one logit per entry of the action table, a continuous one the mean of a Gaussian squashed
    into [-1, 1], whose log standard deviation is a parameter of the network.
    """

    def __init__(self, shape: NetworkShape, *, initialise: bool = True) -> None:
        """`initialise` False leaves weights that are about to be loaded as they come."""
        super().__init__()
        self.shape = shape
        many = [features for rows, features in shape.blocks if rows > 1]
        self.encoders = nn.ModuleList(RowEncoder(features, shape.known, shape.encoder) for features in many)
        layers: list[nn.Module] = []
        inputs = shape.joined
        for outputs in shape.hidden:
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
            inputs = outputs
        self.trunk = nn.Sequential(*layers)
        cells = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}
        self.memory = cells[shape.memory](inputs, shape.memory_width) if shape.memory != "none" else None
        inputs = shape.memory_width or inputs
        self.actor = nn.Linear(inputs, shape.actions)
        self.critic = nn.Linear(inputs, 1)
        self.log_std = nn.Parameter(torch.full((shape.actions,), -0.5)) if shape.head == "continuous" else None
        if initialise:
            self._initialise()

    def _initialise(self) -> None:
        """Orthogonal weights, small ones for the actor: the first actions are all about equally likely (Andrychowicz
        et al. 2021, What matters in on-policy reinforcement learning, section 3.2)."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.orthogonal_(module.weight, sqrt(2))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.orthogonal_(self.actor.weight, 0.01)
        nn.init.orthogonal_(self.critic.weight, 1.0)

    def forward(self, observation: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Action parameters, value and the memory after this step.

        observation  (B, D)  f32
        memory       (B, H)  f32   None for a network without memory; of an LSTM its output, then its cell
        returns      (B, A) f32, (B,) f32, (B, H) f32 or None
        """
        features = self.encode(observation)
        if self.memory is not None:
            assert memory is not None
            memory = self.remember(features, memory)
            features = memory[:, : self.shape.memory_width]
        return *self.heads(features), memory

    def encode(self, observation: Tensor) -> Tensor:
        """What is seen, (B, D), as features (B, F)."""
        if not torch.is_grad_enabled() and observation.device.type == "cpu" and len(observation) > ROWS_AT_ONCE:
            # What is between the layers of a few hundred agents stays in the caches.
            return torch.cat([self.encode(part) for part in torch.split(observation, ROWS_AT_ONCE)])
        sizes = [rows * features for rows, features in self.shape.blocks]
        blocks = list(zip(self.shape.blocks, torch.split(observation, sizes, 1), strict=True))
        known = near(torch.cat([block for (rows, _), block in blocks if rows == 1], 1))
        many = [block.reshape(-1, rows, features) for (rows, features), block in blocks if rows > 1]
        parts = [known, *(encoder(block, known) for encoder, block in zip(self.encoders, many, strict=True))]
        encoded: Tensor = self.trunk(torch.cat(parts, 1))
        return encoded

    def remember(self, features: Tensor, memory: Tensor) -> Tensor:
        """The memory (B, H) after seeing features (B, F)."""
        assert self.memory is not None
        if self.shape.memory == "lstm":
            width = self.shape.memory_width
            return torch.cat(self.memory(features, (memory[:, :width], memory[:, width:])), 1)
        after: Tensor = self.memory(features, memory)
        return after

    def heads(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Action parameters (B, A) and value (B,) of features (B, F)."""
        out = self.actor(features)
        if self.log_std is not None:
            out = torch.tanh(out)
        return out, self.critic(features).squeeze(-1)

    def sequence(self, observation: Tensor, memory: Tensor | None, reset: Tensor) -> tuple[Tensor, Tensor]:
        """Action parameters and values along a stretch of time.

        observation  (T, B, D)  f32
        memory       (B, H)     f32   before the first step; None for a network without memory
        reset        (T, B)     bool  the memory of the row is forgotten before this step
        returns      (T, B, A) f32, (T, B) f32
        """
        steps, rows = reset.shape
        features = self.encode(observation.flatten(0, 1))
        if self.memory is not None:
            assert memory is not None
            seen = features.view(steps, rows, -1)
            outputs = []
            for step in range(steps):
                memory = self.remember(seen[step], memory * ~reset[step, :, None])
                outputs.append(memory[:, : self.shape.memory_width])
            features = torch.cat(outputs)
        out, value = self.heads(features)
        return out.view(steps, rows, -1), value.view(steps, rows)
