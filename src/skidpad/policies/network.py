"""The torch actor-critic over observation rows: an encoder for each block of rows, pooled, then a small trunk.

Rows of a block (other agents, road, signals) have no order a network should learn, so each goes through the same layer
and the block is the maximum over its rows (Qi et al. 2017, PointNet, eq. 1). Importing this module imports
torch; everything that can do without imports it inside the function that needs it.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from skidpad.policies.lists import ListEncoder, Lists, RoadReader, near, pose_in_list
from skidpad.policies.shape import NetworkShape

ROWS_AT_ONCE = 256


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


class FilledRowEncoder(RowEncoder):
    """As `RowEncoder`, of the rows that are filled alone: most agents see a few others, and one stop line or none."""

    def forward(self, rows: Tensor, known: Tensor) -> Tensor:
        """(B, R, F) f32 and near(known), (B, 2 K) f32, to (B, E) f32; zero where no row is filled."""
        filled = (rows != 0).any(2)
        if not self.training:
            # Under evaluation every call has one shape, so that no number depends on who shares the batch.
            out = self.out(torch.relu(self.row(near(rows)) + self.own(known)[:, None]))
            return torch.relu(torch.where(filled[:, :, None], out, 0.0).amax(1))
        many, slots, features = rows.shape
        at = filled.flatten().nonzero().squeeze(1)
        whose = torch.div(at, slots, rounding_mode="floor")
        seen = rows.reshape(-1, features).index_select(0, at)
        out = self.out(torch.relu(self.row(near(seen)) + self.own(known).index_select(0, whose)))
        pooled: Tensor = out.new_zeros(many, out.shape[1])
        return pooled.scatter_reduce(0, whose[:, None].expand_as(out), out, "amax")


class ActorCritic(nn.Module):
    """Observation rows to action parameters and a value.

    A discrete head gives one logit per entry of the action table, a continuous one the mean of a Gaussian squashed
    into [-1, 1], whose log standard deviation is a parameter of the network.
    """

    def __init__(self, shape: NetworkShape, *, initialise: bool = True) -> None:
        """`initialise` False leaves weights that are about to be loaded as they come."""
        super().__init__()
        self.shape = shape
        kind = FilledRowEncoder if shape.lists else RowEncoder
        self.encoders = nn.ModuleList(kind(features, shape.known, shape.encoder) for features in shape.rows)
        if shape.lists:
            self.lists = ListEncoder([features for _, features in shape.lists], shape.list_widths)
            self.road = RoadReader(len(shape.lists) * shape.list_widths[-1], shape.road)
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

    def forward(
        self, observation: Tensor, memory: Tensor | None, lists: Lists | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Action parameters, value and the memory after this step.

        observation  (B, D)  f32
        memory       (B, H)  f32   None for a network without memory; of an LSTM its output, then its cell
        lists        what references of the rows refer to; None for a network that reads none
        returns      (B, A) f32, (B,) f32, (B, H) f32 or None
        """
        features = self.encode(observation, self._road(observation, lists))
        if self.memory is not None:
            assert memory is not None
            memory = self.remember(features, memory)
            features = memory[:, : self.shape.memory_width]
        return *self.heads(features), memory

    def _road(self, observation: Tensor, lists: Lists | None) -> Tensor | None:
        """Encodings (B, L) of the road lists that rows refer to."""
        if not self.shape.lists:
            return None
        assert lists is not None
        road: Tensor = lists.read(observation)
        return road

    def encode(self, observation: Tensor, road: Tensor | None = None) -> Tensor:
        """What is seen, (B, D), and the encodings (B, L) of the lists referred to, as features (B, F)."""
        if not torch.is_grad_enabled() and observation.device.type == "cpu" and len(observation) > ROWS_AT_ONCE:
            # What is between the layers of a few hundred agents stays in the caches.
            seen = torch.split(observation, ROWS_AT_ONCE)
            roads = [None] * len(seen) if road is None else torch.split(road, ROWS_AT_ONCE)
            return torch.cat([self.encode(*part) for part in zip(seen, roads, strict=True)])
        blocks = torch.split(observation, [rows * features for rows, features in self.shape.blocks], 1)
        own = [block for block, pooled in zip(blocks, self.shape.pooled, strict=True) if not pooled]
        if road is not None:
            own[-1] = pose_in_list(own[-1], self.shape.sectors)
        known = near(torch.cat(own, 1))
        many = [
            block.reshape(-1, *size)
            for block, size, pooled in zip(blocks, self.shape.blocks, self.shape.pooled, strict=True)
            if pooled
        ]
        parts = [known, *(encoder(block, known) for encoder, block in zip(self.encoders, many, strict=True))]
        if road is not None:
            parts.append(self.road(road, near(own[-1])))
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

    def sequence(
        self, observation: Tensor, memory: Tensor | None, reset: Tensor, lists: Lists | None = None
    ) -> tuple[Tensor, Tensor]:
        """Action parameters and values along a stretch of time.

        observation  (T, B, D)  f32
        memory       (B, H)     f32   before the first step; None for a network without memory
        reset        (T, B)     bool  the memory of the row is forgotten before this step
        lists        as in `forward`
        returns      (T, B, A) f32, (T, B) f32
        """
        steps, rows = reset.shape
        seen = observation.flatten(0, 1)
        features = self.encode(seen, self._road(seen, lists))
        if self.memory is not None:
            assert memory is not None
            encoded = features.view(steps, rows, -1)
            outputs = []
            for step in range(steps):
                memory = self.remember(encoded[step], memory * ~reset[step, :, None])
                outputs.append(memory[:, : self.shape.memory_width])
            features = torch.cat(outputs)
        out, value = self.heads(features)
        return out.view(steps, rows, -1), value.view(steps, rows)
