"""Proximal policy optimisation: one update of a network from one batch (Schulman et al. 2017).

The losses are means over the live rows of a minibatch. Under several ranks a minibatch is the union of what each rank
takes, so its means are sums over all ranks divided by the number of all live rows: with one minibatch two ranks make
the update that one rank would, but for the order of additions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from skidpad.errors import CaseError
from skidpad.policies.lists import Lists
from skidpad.policies.network import ActorCritic
from skidpad.settings.schema import TrainSettings
from skidpad.training.collect import Batch
from skidpad.training.distributions import entropy, log_probability
from skidpad.training.ranks import Ranks

STRETCH = 8


class Minibatch(NamedTuple):
    """B rows to learn from: steps of any rows, or whole stretches of some rows with a memory.

    obs        (B, D), or (T, B, D) with a memory
    others     (B,) f32, or (T * B,) with a memory; `action` as in `Batch`
    weight     f32   1 for a live row, else 0; None where all are live
    reset      (T, B) bool and memory (B, H) f32, with a memory only
    lists      as in `Batch`
    """

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor
    weight: Tensor | None
    reset: Tensor | None
    memory: Tensor | None
    lists: Lists | None = None


class Losses(NamedTuple):
    """Sums over the live rows of a minibatch: of the loss and its parts, and of what shows how far it went."""

    loss: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    kl: Tensor
    clipped: Tensor


class NotFiniteError(CaseError):
    """A loss or gradient is not a number; what was being learnt from is in `minibatch`."""

    def __init__(self, message: str, minibatch: Minibatch) -> None:
        super().__init__(message)
        self.minibatch = minibatch


def losses(out: Tensor, log_std: Tensor | None, value: Tensor, batch: Minibatch, settings: TrainSettings) -> Losses:
    """The losses of PPO, summed.

    The clipped surrogate is eq. 7 of Schulman et al. (2017); the clipped value loss is that of its authors' code (as
    told by Engstrom et al. 2020, section 3, item 1); the entropy bonus is eq. 9; `kl` is the estimate k3 of Schulman
    (2020, Approximating KL divergence).

    out      (B, A)  f32   action parameters now
    value    (B,)    f32   values now
    """
    change = log_probability(out, log_std, batch.action) - batch.log_prob
    ratio = torch.exp(change)
    clip = settings.clip
    surrogate = torch.maximum(-batch.advantage * ratio, -batch.advantage * ratio.clamp(1 - clip, 1 + clip))
    error = (value - batch.target) ** 2
    if settings.value_clip > 0:
        near = batch.value + (value - batch.value).clamp(-settings.value_clip, settings.value_clip)
        error = torch.maximum(error, (near - batch.target) ** 2)
    bonus = entropy(out, log_std)
    with torch.no_grad():
        kl = ratio - 1 - change
        clipped = ((ratio - 1).abs() > clip).float()
    parts = [surrogate, 0.5 * error, bonus, kl, clipped]
    sums = [(part if batch.weight is None else part * batch.weight).sum() for part in parts]
    loss = sums[0] + settings.value_coefficient * sums[1] - settings.entropy_coefficient * sums[2]
    return Losses(loss, *sums)


def update(
    network: ActorCritic,
    optimiser: torch.optim.Optimizer,
    batch: Batch,
    settings: TrainSettings,
    generator: torch.Generator,
    ranks: Ranks,
) -> dict[str, float]:
    """Learn from a batch for `settings.epochs` passes; returns means over all minibatches and ranks.

    Raises NotFiniteError where a loss or a gradient is not finite: the network is left as it was before that
    minibatch.
    """
    batch = batch._replace(advantage=normalised(batch, ranks) if settings.normalise else batch.advantage)
    batch, parts = filtered(batch, settings, ranks)
    parameters = list(network.parameters())
    sums = [0.0] * len(Losses._fields)
    norms, steps = 0.0, 0
    for _ in range(settings.epochs):
        for part in minibatches(batch, parts, network, generator):
            count = len(part.log_prob) if part.weight is None else float(part.weight.sum())
            (total,) = ranks.total([count])
            found = _losses_of(network, part, settings)
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(found.loss / max(total, 1.0))
            ranks.sum_gradients(parameters)
            norm = float(nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm))
            loss = float(found.loss.detach())
            if not (math.isfinite(norm) and math.isfinite(loss)):
                raise NotFiniteError(f"the loss is {loss}, the norm of its gradient {norm}", part)
            optimiser.step()
            means = ranks.total([float(value.detach()) / max(total, 1.0) for value in found])
            sums = [have + new for have, new in zip(sums, means, strict=True)]
            norms, steps = norms + norm, steps + 1
    report = {name: value / steps for name, value in zip(Losses._fields, sums, strict=True)}
    return report | {"gradient_norm": norms / steps}


def _losses_of(network: ActorCritic, part: Minibatch, settings: TrainSettings) -> Losses:
    kind = part.obs.device.type
    with torch.autocast(kind, torch.bfloat16, enabled=settings.precision == "bfloat16"):
        if part.reset is None:
            out, value, _ = network(part.obs, None, part.lists)
        else:
            out, value = network.sequence(part.obs, part.memory, part.reset, part.lists)
            out, value = out.flatten(0, 1), value.flatten()
    return losses(out.float(), network.log_std, value.float(), part, settings)


def normalised(batch: Batch, ranks: Ranks) -> Tensor:
    """Advantages with mean 0 and deviation 1 over the live rows of all ranks."""
    live = batch.advantage[batch.learn].double()
    count, total, squares = ranks.total([float(len(live)), float(live.sum()), float((live**2).sum())])
    mean = total / max(count, 1.0)
    deviation = math.sqrt(max(squares / max(count, 1.0) - mean**2, 0.0))
    return (batch.advantage - mean) / (deviation + 1e-8)


def filtered(batch: Batch, settings: TrainSettings, ranks: Ranks) -> tuple[Batch, int]:
    """The batch without steps that would teach little, and the number of minibatches that are left of it.

    Steps whose advantage is smaller than `advantage_filter` deviations go (Cusumano-Towner et al. 2025, Robust autonomy
    emerges from self-play, section 3.4: most of driving is uneventful, and the smallest advantages change nothing).
    Minibatches keep their size, so fewer of them are left; with a memory steps only lose their weight.
    """
    if settings.advantage_filter == 0.0:
        return batch, settings.minibatches
    live, squares = ranks.total([float(batch.learn.sum()), float((batch.advantage[batch.learn].double() ** 2).sum())])
    least = settings.advantage_filter * math.sqrt(squares / max(live, 1.0))
    batch = batch._replace(learn=batch.learn & (batch.advantage.abs() >= least))
    if batch.memory is not None:
        return batch, settings.minibatches
    (kept,) = ranks.total([float(batch.learn.sum())])
    return batch, max(1, math.ceil(settings.minibatches * kept / max(live, 1.0)))


def minibatches(batch: Batch, count: int, network: ActorCritic, generator: torch.Generator) -> Iterator[Minibatch]:
    """One pass over a batch in a drawn order: live steps of a network without memory, else rows with all their steps,
    whose first memory is that of the time when they were driven.

    A network that reads road lists takes the live steps of stretches of STRETCH steps: a car stays on a list for some
    steps, and a list is encoded once for a minibatch. Whole rows would share more, and learn less from as many steps.
    """
    device = next(network.parameters()).device
    if batch.memory is None:
        flat = {name: getattr(batch, name).flatten(0, 1) for name in ("obs", *_NUMBERS)}
        for chosen in _drawn_steps(batch, count, generator):
            parts = {name: part[chosen].to(device) for name, part in flat.items()}
            yield Minibatch(**parts, weight=None, reset=None, memory=None, lists=batch.lists)
        return
    order = torch.randperm(batch.learn.shape[1], generator=generator)
    for rows in order.tensor_split(count):
        parts = {name: getattr(batch, name)[:, rows].flatten(0, 1).to(device) for name in _NUMBERS}
        yield Minibatch(
            **parts,
            obs=batch.obs[:, rows].to(device),
            weight=batch.learn[:, rows].flatten().float().to(device),
            reset=batch.reset[:, rows].to(device),
            memory=batch.memory[rows.to(device)],
            lists=batch.lists,
        )


def _drawn_steps(batch: Batch, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Numbers of the live steps of each minibatch, of the (T * N) of a batch."""
    steps, rows = batch.learn.shape
    if batch.lists is None:
        live = batch.learn.flatten().nonzero().squeeze(1)
        yield from live[torch.randperm(len(live), generator=generator)].tensor_split(count)
        return
    number = torch.arange(steps * rows).view(steps, rows)
    pieces = [piece for part in torch.split(number, STRETCH) for piece in part.T]
    learn = batch.learn.flatten()
    for chosen in torch.randperm(len(pieces), generator=generator).tensor_split(count):
        taken = torch.cat([pieces[k] for k in chosen.tolist()])
        yield taken[learn[taken]]


_NUMBERS = ("action", "log_prob", "value", "advantage", "target")
