"""What the heads of a network mean: draws, log probabilities and entropies of their actions."""

from __future__ import annotations

from math import log, pi

import torch
from torch import Tensor

HALF_LOG_2PI = 0.5 * log(2 * pi)


def draw(out: Tensor, log_std: Tensor | None, uniform: Tensor) -> Tensor:
    """Actions from uniform numbers: by inversion for a discrete head, Box and Muller (1958) for a continuous one.

    out      (B, A)  f32   logits, or means in the box
    log_std  (A,)    f32   of a continuous head; None for a discrete one
    uniform  (B, 4)  f32   in [0, 1)
    returns  (B,) i64, or (B, 2) f32 not yet clipped
    """
    if log_std is None:
        below = torch.softmax(out, 1).cumsum(1)
        return (below <= uniform[:, :1] * below[:, -1:]).sum(1).clamp(max=out.shape[1] - 1)
    radius = torch.sqrt(-2 * torch.log1p(-uniform[:, :2]))
    return out + torch.exp(log_std) * radius * torch.cos(2 * pi * uniform[:, 2:])


def log_probability(out: Tensor, log_std: Tensor | None, action: Tensor) -> Tensor:
    """(B,) f32, of actions as `draw` gives them; a continuous one's is a density, of the action before clipping."""
    if log_std is None:
        return torch.log_softmax(out, 1).gather(1, action[:, None]).squeeze(1)
    scaled = (action - out) * torch.exp(-log_std)
    return -(0.5 * scaled**2 + log_std + HALF_LOG_2PI).sum(1)


def entropy(out: Tensor, log_std: Tensor | None) -> Tensor:
    """(B,) f32 [nat]."""
    if log_std is None:
        logs = torch.log_softmax(out, 1)
        return -(logs.exp() * logs).sum(1)
    return (log_std + 0.5 + HALF_LOG_2PI).sum().expand(len(out))
