"""Road lists encoded once for all who read them (`simulation.roads`), for networks on layouts that defer road rows.

Importing this module imports torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import pi
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from skidpad.policies.shape import POSE

if TYPE_CHECKING:
    from skidpad.simulation.roads import Roads

F32 = NDArray[np.float32]

NEAR = 8.0
AT_ONCE = 32  # lists of one call without gradients, always as many: an encoding does not depend on what else is new
KEPT = 1 << 14


def near(seen: Tensor) -> Tensor:
    """Features (..., F) beside themselves with a finer scale that ends, (..., 2 F).

    Layouts divide by the farthest that can be seen, 60 m and more; what decides whether a car touches a kerb is a
    tenth of a metre, which such a number hardly shows. tanh(8 x) does, out to an eighth of the range.
    """
    return torch.cat([seen, torch.tanh(NEAR * seen)], -1)


class ListEncoder(nn.Module):
    """Blocks of road rows, (n, R, F) each, as vectors (n, L): two layers on each row, and the maximum over the rows."""

    def __init__(self, features: Sequence[int], widths: tuple[int, int]) -> None:
        super().__init__()
        first, second = widths
        self.width = len(features) * second
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * count, first), nn.ReLU(), nn.Linear(first, second)) for count in features
        )

    def forward(self, rows: Sequence[Tensor]) -> Tensor:
        """(n, R, F) f32 of each block to (n, L) f32; L = blocks x the second width."""
        outs = [block(near(own)) for block, own in zip(self.blocks, rows, strict=True)]
        # Without a gradient nobody asks where the maxima were, which is several times faster.
        return torch.relu(torch.cat([out.max(1).values if torch.is_grad_enabled() else out.amax(1) for out in outs], 1))


class RoadReader(nn.Module):
    """What the encoding of a list means to somebody in it, (B, E): one layer on both, and their products.

    An edge that runs askew to the list's frame is as far away as its offset and its slope times the agent's place say:
    a product, which a layer on sums has to piece together.
    """

    def __init__(self, encoded: int, width: int) -> None:
        super().__init__()
        self.list = nn.Linear(encoded, 2 * width)
        self.pose = nn.Linear(2 * POSE, 2 * width)

    def forward(self, encoded: Tensor, pose: Tensor) -> Tensor:
        """(B, L) f32 and near(pose), (B, 2 POSE) f32, to (B, E) f32."""
        (offset, slope), (own, place) = self.list(encoded).chunk(2, 1), self.pose(pose).chunk(2, 1)
        return torch.relu(offset + own + slope * place)


def pose_in_list(reference: Tensor, sectors: int) -> Tensor:
    """Where agents are in the frames of their lists, (B, POSE) f32, from references (B, 9) f32.

    Place in half cells, cosine of the heading, its sine in half sectors, and products; all by 1/8, which `near` undoes.
    """
    angle = (2 * reference[:, 3] + 1) * (pi / sectors)
    cos, sin = torch.cos(angle), torch.sin(angle)
    x, y, c, s = reference[:, 4] / 5, reference[:, 5] / 5, reference[:, 7], reference[:, 8]
    x, y, c, s = x * cos + y * sin, y * cos - x * sin, c * cos + s * sin, s * cos - c * sin
    s = s * (sectors / pi)
    return torch.stack([x, y, c, s, x * s, y * s, x * x, y * y], 1) / NEAR


def _uncompiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that `torch.compile` leaves alone: it cannot follow dictionaries that grow."""
    # Whoever compiles has loaded torch._dynamo by now. To load it only to say so takes as long as torch itself.
    if "torch._dynamo" not in sys.modules:
        return function
    disabled: Callable[..., Tensor] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return disabled


class Lists:
    """What rows refer to: the lists of some roads, and, without gradients, their encodings by the encoder as it is.

    Encodings are kept with the version of every weight that they were made with, since torch counts what is done to a
    tensor, and made again when it is another: there are no stale ones. With gradients nothing is kept.
    """

    def __init__(self, roads: Roads, encoder: ListEncoder) -> None:
        self.roads, self._encoder = roads, encoder
        self._read = _uncompiled(Lists._looked_up)
        self._device = next(encoder.parameters()).device
        self._forget()

    def _forget(self) -> None:
        self._index: dict[int, int] = {}
        self._rows = [block[:0] for block in self.roads.rows(np.zeros(0, np.int64))]
        self._encoded = torch.zeros(0, self._encoder.width, device=self._device)
        self._made = np.zeros(0, np.bool_)
        self._weights: list[nn.Parameter] = []
        self._made_with: list[tuple[int, int, int]] = []

    def read(self, observation: Tensor) -> Tensor:
        """Encodings (N, L) of the lists that rows (N, D) refer to. Raises ProtocolError as `Roads.keys`."""
        return self._read(self, observation)

    def _looked_up(self, observation: Tensor) -> Tensor:
        index = torch.from_numpy(self._find(self.roads.keys(observation.cpu().numpy())))
        if torch.is_grad_enabled():
            lists, which = torch.unique(index, return_inverse=True)
            read = [torch.from_numpy(rows[lists.numpy()]).to(self._device) for rows in self._rows]
            fresh: Tensor = self._encoder(read)
            return fresh[which.to(self._device)]
        return self._known(index.numpy())[index.to(self._device)]

    def _find(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of lists by their keys; those that nobody has read before are gathered."""
        if len(self._index) > KEPT:
            self._forget()
        known, wanted = self._index, keys.tolist()
        new = [key for key in dict.fromkeys(wanted) if key not in known]
        if new:
            known.update(zip(new, range(len(known), len(known) + len(new)), strict=True))
            added = self.roads.rows(np.array(new, np.int64))
            self._rows = [_put(*one, len(known)) for one in zip(self._rows, added, strict=True)]
        return np.array([known[key] for key in wanted], np.int64)

    @torch.inference_mode()
    def _known(self, wanted: NDArray[np.int64]) -> Tensor:
        """Encodings of all lists by number, (n, L); good for those that are wanted."""
        weights = list(self._encoder.parameters())
        made_with = [(id(one), one.data_ptr(), one._version) for one in weights]
        if made_with != self._made_with:
            # The weights are held, so that no others can come to lie where they lay.
            self._weights, self._made_with = weights, made_with
            self._made[:] = False
        more = len(self._rows[0]) - len(self._made)
        if more:
            self._made = np.concatenate([self._made, np.zeros(more, np.bool_)])
            self._encoded = torch.cat([self._encoded, self._encoded.new_zeros(more, self._encoder.width)])
        missing = np.unique(wanted[~self._made[wanted]])
        for start in range(0, len(missing), AT_ONCE):
            part = missing[start : start + AT_ONCE]
            chunk = [torch.from_numpy(rows[np.resize(part, AT_ONCE)]).to(self._device) for rows in self._rows]
            self._encoded[torch.from_numpy(part).to(self._device)] = self._encoder(chunk)[: len(part)]
        self._made[missing] = True
        return self._encoded


def _put(table: F32, added: F32, end: int) -> F32:
    """The table with what is added before row `end`; longer, by doubling, where it was too short."""
    if len(table) < end:
        more = max(end - len(table), len(table), 32 * AT_ONCE)
        table = np.concatenate([table, np.zeros((more, *table.shape[1:]), np.float32)])
    table[end - len(added) : end] = added
    return table
