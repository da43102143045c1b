"""A training run from its first weights to its report: collect, learn, save, evaluate, over and over.

One run is one folder. Everything that decides the next bytes of the weights lies in a checkpoint, so a run that was
stopped anywhere and resumed ends as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from skidpad.artifacts.digests import digest_arrays
from skidpad.artifacts.weights import Weights
from skidpad.errors import CaseError, CheckpointError, SettingsError
from skidpad.policies.checkpoint import Architecture, Checkpoint, architecture_for, load_checkpoint
from skidpad.policies.library import library_drivers
from skidpad.policies.network import ActorCritic
from skidpad.scenes.convert import open_scene
from skidpad.simulation.layout import layout_of
from skidpad.simulation.training import training_simulator
from skidpad.training.checkpoints import (
    Checkpoints,
    Counters,
    bytes_array,
    optimiser_arrays,
    restore_optimiser,
)
from skidpad.training.collect import Batch, Collector, Driven, Worlds
from skidpad.training.ppo import STRETCH, Minibatch, NotFiniteError, update
from skidpad.training.ranks import Ranks

if TYPE_CHECKING:
    from skidpad.scenes.scene import Scene
    from skidpad.settings.training import TrainingSpec

RUN_LENGTH = 16


@dataclass(frozen=True)
class Report:
    """What an update came to: the columns of training.csv."""

    counters: Counters
    values: dict[str, float]


class Trainer:
    """Learns, one update at a time.

    network, optimiser   what is learnt
    counters             how far it has come
    run                  identity of the training: settings and scenes

    make_worlds  builds the worlds of one draw of scenes; by default simulators over the spec's scenes

    Raises SettingsError, before anything is allocated, for settings that cannot work.
    """

    def __init__(
        self,
        spec: TrainingSpec,
        ranks: Ranks | None = None,
        make_worlds: Callable[[int], Worlds] | None = None,
    ) -> None:
        self.spec, self.settings, self.ranks = spec, spec.train, ranks or Ranks()
        check_training(spec, self.ranks.count)
        self.device = device_of(self.settings.device)
        self._scenes: list[Scene] = [open_scene(path) for path in spec.scenes]
        self._make_worlds = make_worlds or self._simulator
        self.architecture = architecture_for(spec.env, spec.network)
        path = start_of(spec)
        start = None if path is None else checked_start(path, self.architecture)
        self.run = spec.digest([scene.digest for scene in self._scenes], start.digest if start else "")[:RUN_LENGTH]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)
            self.network = ActorCritic(self.architecture.network).to(self.device)
        if start is not None:
            self.network.load_state_dict({name: torch.from_numpy(a.copy()) for name, a in start.arrays.items()})
        if self.settings.compile:
            self.network.compile()
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=self.settings.learning_rate, eps=1e-5)
        self._draws = torch.Generator().manual_seed(self.settings.seed)
        self._order = torch.Generator().manual_seed(self.settings.seed + 1)
        self.counters = Counters()
        self.collector: Collector | None = None
        self._spent = [0.0, 0.0, 0.0]

    # -- worlds -----------------------------------------------------------------------------------------------------

    def _simulator(self, draw: int) -> Worlds:
        """Worlds of the draw-th choice of scenes, of this rank."""
        rows = self.settings.rows // self.ranks.count
        seed = (self.settings.seed * 1_000_003 + draw) * self.ranks.count + self.ranks.number
        simulator: Worlds = training_simulator(
            self._scenes, self.spec.env, rows=rows, seed=seed, threads=self.settings.threads
        )
        return simulator

    def _draw(self) -> int:
        """Which choice of scenes the next update drives in."""
        return self.counters.epoch // self.settings.resample if self.settings.resample else 0

    def _begin(self, snapshot: bytes | None = None) -> Collector:
        worlds: Any = self._make_worlds(self._draw())
        worlds.reset()
        if snapshot is not None:
            worlds.restore(snapshot)
        settings = self.settings
        return Collector(worlds, self.network, settings.horizon, self._draws, self.ranks, bootstrap=settings.bootstrap)

    # -- learning ---------------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether all steps have been driven."""
        return self.counters.step >= self.settings.total_steps

    def advance(self) -> Report:
        """One update. Raises CaseError, with the digest of what was being learnt from, where a loss is not finite: the
        network is as it was before that minibatch."""
        fresh = self.settings.resample and self.counters.epoch % self.settings.resample == 0
        if self.collector is None or (fresh and self.counters.epoch):
            self.collector = self._begin()
        rate = self._set_rate()
        began = time.perf_counter()
        before = self.collector.simulate_seconds, self.collector.act_seconds
        batch, driven = self.collector.collect(self.settings.gamma, self.settings.gae_lambda)
        collected = time.perf_counter()
        try:
            learnt = update(self.network, self.optimiser, batch, self.settings, self._order, self.ranks)
        except NotFiniteError as error:
            raise CaseError(
                f"training stopped in update {self.counters.epoch + 1}: {error}. What was being learnt from has digest "
                f"{minibatch_digest(error.minibatch)}; the seed is {self.settings.seed}. The last checkpoint holds: "
                "lower train.learning_rate, or look at the rewards."
            ) from None
        ended = time.perf_counter()
        driven = driven.over(self.ranks)
        self.counters = Counters(self.counters.epoch + 1, self.counters.step + int(driven.steps))
        spent = (
            self.collector.simulate_seconds - before[0],
            self.collector.act_seconds - before[1],
            ended - collected,
        )
        return Report(self.counters, self._values(batch, driven, learnt, rate, spent, ended - began))

    def _set_rate(self) -> float:
        """The learning rate of this update, by the share of all steps that has been driven."""
        share = min(self.counters.step / self.settings.total_steps, 1.0)
        factor = {
            "constant": 1.0,
            "linear": 1.0 - share,
            "cosine": 0.5 + 0.5 * math.cos(math.pi * share),
        }[self.settings.schedule]
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.learning_rate * factor
        return self.settings.learning_rate * factor

    def _values(
        self,
        batch: Batch,
        driven: Driven,
        learnt: dict[str, float],
        rate: float,
        spent: tuple[float, float, float],
        seconds: float,
    ) -> dict[str, float]:
        named = dict(zip(("simulate_seconds", "act_seconds", "learn_seconds"), spent, strict=True))
        counts = {name: int(getattr(driven, name)) for name in ("drives", "goals", "crashes", "departures")}
        return {
            "epoch": self.counters.epoch,
            "step": self.counters.step,
            **counts,
            "reward_per_step": driven.reward / max(driven.steps, 1),
            "learning_rate": rate,
            **learnt,
            "explained_variance": explained_variance(batch),
            **named,
            "steps_per_second": driven.steps / seconds,
        }

    # -- stopping and going on --------------------------------------------------------------------------------------

    def save(self, checkpoints: Checkpoints) -> Path | None:
        """Write a checkpoint; the file of the weights on the rank that writes, else None."""
        own: dict[str, np.ndarray[Any, Any]] = {}
        if self.collector is not None:
            own = {"reset": self.collector.reset.copy()}
            snapshot = getattr(self.collector.worlds, "snapshot", None)
            if snapshot is not None:
                own["worlds"] = bytes_array(snapshot())
            if self.collector.memory is not None:
                own["memory"] = self.collector.memory.cpu().numpy()
        parts = self.ranks.gathered(own)
        if not self.ranks.first:
            return None
        arrays = {f"rank{number}.{name}": array for number, part in enumerate(parts) for name, array in part.items()}
        arrays |= optimiser_arrays(self.network, self.optimiser)
        arrays |= {"draws": self._draws.get_state().numpy(), "order": self._order.get_state().numpy()}
        said = {
            "epoch": self.counters.epoch,
            "step": self.counters.step,
            "ranks": self.ranks.count,
            "device": self.device.type,
            "threads": self.settings.threads,
        }
        return checkpoints.save(self.counters, self.network, self.architecture, arrays, said)

    def restore(self, trainer: Weights, weights: Weights) -> None:
        """Go on from a checkpoint. Raises CheckpointError for another number of ranks, whose worlds are others."""
        meta = trainer.meta
        if int(meta["ranks"]) != self.ranks.count:
            raise CheckpointError(
                f"the checkpoint was written by {meta['ranks']} ranks, this run has {self.ranks.count}: their worlds "
                "are others. Start as many."
            )
        self.network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.arrays.items()})
        restore_optimiser(self.network, self.optimiser, trainer.arrays)
        self._draws.set_state(torch.from_numpy(trainer.arrays["draws"].copy()))
        self._order.set_state(torch.from_numpy(trainer.arrays["order"].copy()))
        self.counters = Counters(int(meta["epoch"]), int(meta["step"]))
        own = {
            name.partition(".")[2]: array
            for name, array in trainer.arrays.items()
            if name.startswith(f"rank{self.ranks.number}.")
        }
        if not own:
            return
        fresh = self.settings.resample and self.counters.epoch % self.settings.resample == 0
        if fresh:
            return  # the next update draws new worlds, as it would have
        self.collector = self._begin(own["worlds"].tobytes() if "worlds" in own else None)
        self.collector.reset = own["reset"].copy()
        if "memory" in own:
            self.collector.memory = torch.from_numpy(own["memory"].copy()).to(self.device)


def start_of(spec: TrainingSpec) -> Path | None:
    """The file that training begins with. Raises SettingsError for a shipped driver that there is not."""
    kind, _, name = (spec.train.start or "").partition(":")
    if kind != "library":
        return spec.start
    drivers = library_drivers()
    if name not in drivers:
        raise SettingsError(f"train.start = {spec.train.start!r}: the shipped drivers are {', '.join(drivers)}")
    return drivers[name]


def checked_start(path: Path, here: Architecture) -> Checkpoint:
    """The checkpoint that training begins with. Raises CheckpointError, with both sides, where it is of another
    network or other worlds."""
    start = load_checkpoint(path)
    if start.architecture != here:
        raise CheckpointError(
            f"train.start, {path}: is of {start.architecture}, this training needs {here}. Begin with another file, or "
            "with none."
        )
    return start


def device_of(name: str) -> torch.device:
    """The device that `train.device` means here. Raises SettingsError for a GPU where there is none."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingsError('train.device = "cuda", and torch sees no GPU here. Use "auto" or "cpu".')
    return torch.device(name)


def check_training(spec: TrainingSpec, ranks: int) -> None:
    """Raises SettingsError, naming the keys and their values, for settings that cannot work together."""
    train, env = spec.train, spec.env
    where = {key: leaf.origin.where for key, leaf in spec.leaves.items()}

    def refuse(key: str, sentence: str) -> None:
        place = where.get(("train", *key.split(".")))
        raise SettingsError(f"{f'{place}: ' if place else ''}{sentence}")

    if train.rows % ranks:
        refuse("rows", f"train.rows = {train.rows} cannot be shared by {ranks} ranks evenly; use a multiple of {ranks}")
    rows = train.rows // ranks
    parts, what = rows * train.horizon, "steps in a batch"
    if spec.network.memory != "none":
        parts, what = rows, "rows, and a network with memory learns from whole rows"
    elif layout_of(env).lists:
        parts = rows * math.ceil(train.horizon / STRETCH)
        what = f"stretches of {STRETCH} steps, and a network that reads road lists learns from whole ones"
    if train.minibatches > parts:
        refuse("minibatches", f"train.minibatches = {train.minibatches}, but there are {parts} {what}; use fewer")
    if train.total_steps < rows * train.horizon:
        refuse(
            "total_steps",
            f"train.total_steps = {train.total_steps}, less than one batch of rows x horizon = {rows * train.horizon}",
        )
    if env.obs_dtype != "float32":
        refuse("env.obs_dtype", f"env.obs_dtype = {env.obs_dtype!r}: the network learns from float32 rows")
    if env.control == "none" and env.simulation_mode == "replay":
        refuse("env.control", 'env.control = "none" leaves nobody to drive')
    if train.keep_every % train.save_every:
        refuse(
            "keep_every",
            f"train.keep_every = {train.keep_every} is no multiple of train.save_every = {train.save_every}: some of "
            "those checkpoints would not be written",
        )


def explained_variance(batch: Batch) -> float:
    """1 minus the share of the targets' variance that the values had left, over the live rows of this rank; 0 where
    targets do not vary."""
    target, value = batch.target[batch.learn].double(), batch.value[batch.learn].double()
    variance = float(target.var(correction=0)) if len(target) else 0.0
    return 1.0 - float((target - value).var(correction=0)) / variance if variance > 0 else 0.0


def minibatch_digest(part: Minibatch) -> str:
    """Content digest of what an update was being made from."""
    arrays = {name: value.cpu().numpy() for name, value in part._asdict().items() if isinstance(value, torch.Tensor)}
    return digest_arrays(arrays, "minibatch")
