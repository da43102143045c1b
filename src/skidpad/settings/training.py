"""What a suite says about training: `[train]`, `[policy]`, and the worlds of training in `[train.env]`.

The worlds are those of the suite's `[env]`, in which an infraction ends the drive unless something says otherwise, with
`[train.env]` over them. Evaluators never see any of it, and training never sees a section of theirs.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skidpad.artifacts.digests import digest_value
from skidpad.settings.checking import fields_of, unknown_key, validated
from skidpad.settings.leaves import Key, Leaf, Leaves, Origin, Problems, dotted, laid_over
from skidpad.settings.overrides import Overrides
from skidpad.settings.schema import (
    TRAINING_DEFAULTS,
    EnvSettings,
    NetworkSettings,
    SuiteEnvSettings,
    TrainSettings,
)
from skidpad.settings.sections import Sections, as_tuple
from skidpad.settings.stack import DEFAULT, group_of

KNOWN: Mapping[Key, Any] = {
    **{("train", *key): kind for key, kind in fields_of(TrainSettings).items()},
    **{("train", "env", *key): kind for key, kind in fields_of(SuiteEnvSettings).items()},
    **{("policy", *key): kind for key, kind in fields_of(NetworkSettings).items()},
}
NOWHERE = Origin("base", "suite")


@dataclass(frozen=True)
class TrainingSpec:
    """What is trained, and in which worlds. `leaves` are what was written, by key as in `KNOWN`."""

    env: EnvSettings
    scenes: tuple[pathlib.Path, ...]
    train: TrainSettings
    network: NetworkSettings
    leaves: Leaves

    @property
    def start(self) -> pathlib.Path | None:
        """The checkpoint that training begins with, by its path; one in a file is relative to that file."""
        return None if self.train.start is None else self._beside("start", self.train.start)

    @property
    def after(self) -> pathlib.Path | None:
        """The suite whose last weights training begins with, by its path; one in a file is relative to that file."""
        named = self.train.after is not None and self.train.start is None
        return self._beside("after", self.train.after or "") if named else None

    def _beside(self, key: str, written: str) -> pathlib.Path:
        origin = self.leaves["train", key].origin
        folder = pathlib.Path(origin.source).parent if origin.line is not None else pathlib.Path()
        return folder / written

    @property
    def tree(self) -> dict[str, Any]:
        """As plain tables of JSON values, defaults included, scenes apart."""
        return {
            "env": self.env.model_dump(mode="json"),
            "train": self.train.model_dump(mode="json"),
            "policy": self.network.model_dump(mode="json"),
        }

    def digest(self, scene_digests: Sequence[str], start_digest: str = "") -> str:
        """Digest of everything that can change what is learnt. Left out are what is kept and shown, and how lists of
        road rows are kept.

        start_digest  of the weights that training begins with, "" for drawn ones
        """
        tree = self.tree
        tree["train"]["start"] = start_digest
        for key in ("after", "save_every", "keep_last", "keep_every", "best", "tracking"):
            del tree["train"][key]
        for key in ("lists", "list_budget_mib"):
            del tree["env"][key]
        return digest_value(tree | {"scenes": list(scene_digests)}, "training")

    def lines(self) -> list[tuple[str, Any, Origin]]:
        """Every key that is written down for a reader, its value and where it came from."""
        found: list[tuple[str, Any, Origin]] = []
        for key in KNOWN:
            value: Any = {"train": self.train, "policy": self.network}[key[0]]
            names = key[1:]
            if names[0] == "env":
                value, names = self.env, names[1:]
            if names == ("scenes",):
                value = tuple(str(path) for path in self.scenes)
            else:
                for name in names:
                    value = getattr(value, name)
            found.append((dotted(key), value, self.leaves[key].origin if key in self.leaves else DEFAULT))
        return found


@dataclass(frozen=True)
class Unplaced:
    """A checked training whose scenes have not been looked for."""

    env: SuiteEnvSettings
    train: TrainSettings
    network: NetworkSettings
    leaves: Leaves

    def placed(self, scenes: Sequence[pathlib.Path]) -> TrainingSpec:
        """With the scene files that were found."""
        env = EnvSettings(**{name: getattr(self.env, name) for name in EnvSettings.model_fields})
        return TrainingSpec(env, tuple(scenes), self.train, self.network, self.leaves)

    @property
    def scenes_text(self) -> tuple[str, ...]:
        """The scenes as they were written."""
        return as_tuple(self.env.scenes)

    @property
    def scenes_origin(self) -> Origin:
        """Where they were written."""
        return self.leaves["train", "env", "scenes"].origin


def training_of(sections: Sections, given: Overrides, problems: Problems) -> Unplaced | None:
    """The training of a suite that has one, checked; None without one, or with the reasons in `problems`."""
    written = sections.training
    if not sections.trains:
        for leaf in written.values():
            problems.add(leaf.origin, f"{leaf.origin.written!r} is of a network to train, but there is no [train]")
        return None
    for key, leaf in written.items():
        if key not in KNOWN:
            problems.add(leaf.origin, unknown_key(key, leaf, KNOWN))
    good = {key: leaf for key, leaf in written.items() if key in KNOWN}
    own = laid_over(good, {key: leaf for key, leaf in given.everywhere.items() if key in KNOWN})
    shared = laid_over(
        {("env", *key): Leaf(value, Origin("baseline", "training")) for key, value in _DEFAULTS.items()}, sections.base
    )
    world = laid_over(shared, given.everywhere)
    in_env = {key[1:]: leaf for key, leaf in own.items() if key[:2] == ("train", "env")}
    env_leaves = {key[1:]: leaf for key, leaf in laid_over(world, in_env).items() if key[0] == "env"}
    env_leaves = {key: leaf for key, leaf in env_leaves.items() if key in fields_of(SuiteEnvSettings)}
    of_train = {key: leaf for key, leaf in group_of(own, "train").items() if key[0] != "env"}
    env = validated(SuiteEnvSettings, env_leaves, problems, NOWHERE)
    train = validated(TrainSettings, of_train, problems, NOWHERE)
    network = validated(NetworkSettings, group_of(own, "policy"), problems, NOWHERE)
    if env is None or train is None or network is None:
        return None
    if not as_tuple(env.scenes):
        problems.add(NOWHERE, '[train] needs env.scenes or train.env.scenes: a path, a list of paths, or "library:*"')
        return None
    leaves = {("train", "env", *key): leaf for key, leaf in env_leaves.items()}
    leaves |= {("train", *key): leaf for key, leaf in of_train.items()}
    leaves |= {("policy", *key): leaf for key, leaf in group_of(own, "policy").items()}
    return Unplaced(env, train, network, leaves)


_DEFAULTS: Mapping[Key, Any] = {(name,): value for name, value in TRAINING_DEFAULTS.items()}
