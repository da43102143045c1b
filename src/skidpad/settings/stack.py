"""The six layers of one section, laid over each other (E15).

Weakest first: the files' own `env`, `vec` and `eval`; the checkpoint's architecture; the evaluator type's baseline; the
perturbation profile; the section with its ancestors; the command line. A layer replaces leaves and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from skidpad.errors import nearest
from skidpad.settings.checking import HEADER, section_fields, typed, unknown_key, validated
from skidpad.settings.leaves import Key, Leaf, Leaves, Origin, Problems, dotted, laid_over
from skidpad.settings.mode_rules import fitted_to_mode
from skidpad.settings.overrides import Overrides
from skidpad.settings.render_rules import check_budget, with_implied_record
from skidpad.settings.schema import (
    ARCHITECTURE_KEYS,
    PERTURBATIONS_OFF,
    PERTURBATIONS_STRESS,
    EvalKnobs,
    HeaderSettings,
    SuiteEnvSettings,
    VecSettings,
)
from skidpad.settings.sections import Section, without
from skidpad.settings.suite_file import plain, toml_text

DEFAULT = Origin("default", "default")
LASTING = ("pool", "ray")  # modes whose workers stay
CLEAN, TRAIN, STRESS = BUILT_IN = "clean", "train", "stress"
RENAMED = {"wosac": "realism", "WOSAC": "realism"}
"""What others call evaluator types of ours."""


@dataclass(frozen=True)
class EvaluatorType:
    """What the settings must know of an evaluator type.

    name      the value of `type`
    settings  model of `eval.*`
    baseline  dotted keys the type sets unless something stronger does: {"env.control": "sdc",
              "action_selection": "deterministic"}
    """

    name: str
    settings: type[EvalKnobs]
    baseline: Mapping[str, Any]


UNTYPED = EvaluatorType("untyped", EvalKnobs, {"type": "untyped", "action_selection": "deterministic"})
"""Stands in where the type is missing or unknown, so that the section's other mistakes are found in the same load."""


@dataclass(frozen=True)
class Resolved:
    """One live section, checked, its paths not yet looked at. `leaves` are what the layers set, defaults apart."""

    name: str
    type: EvaluatorType
    origin: Origin
    header: HeaderSettings
    env: SuiteEnvSettings
    vec: VecSettings
    knobs: EvalKnobs
    leaves: Leaves

    def value(self, key: Key) -> Any:
        """The resolved value under a key relative to the section."""
        value: Any = {"env": self.env, "vec": self.vec, "eval": self.knobs}.get(key[0], self.header)
        for name in key if len(key) == 1 else key[1:]:
            value = getattr(value, name)
        return value

    def origin_of(self, key: Key) -> Origin:
        """The origin of a leaf that some layer sets, else that of a default."""
        return self.leaves[key].origin if key in self.leaves else DEFAULT


@dataclass(frozen=True)
class Stack:
    """The layers that all sections share. `known` are the keys of a section of any type; others are refused before;
    `shipped` are the names of drivers that come with the package."""

    base: Leaves
    architecture: Leaves
    profiles: Mapping[str, Leaves]
    overrides: Overrides
    types: Mapping[str, EvaluatorType]
    known: Collection[Key]
    shipped: Collection[str] = ()

    def type_leaf(self, name: str, line: Sequence[Section]) -> Leaf | None:
        """What the section (with its ancestors, `line`) says of its type."""
        return self._own(name, line, {}).get(("type",))

    def resolved(self, name: str, line: Sequence[Section], problems: Problems) -> Resolved | None:
        """The section through all layers and checked, or None with the reasons in `problems`."""
        found = self._type(name, line, problems)
        kind = found or UNTYPED
        baseline = baseline_leaves(kind)
        fields = section_fields([kind.settings])
        header = laid_over(baseline, self._own(name, line, {}))
        weak: Leaves = {key: leaf for key, leaf in self.base.items() if key in fields}
        for layer in (self.architecture, baseline, self._profile(header.get(("perturbations",)), problems)):
            weak = laid_over(weak, layer)
        leaves = self._own(name, line, weak)
        for key in [key for key in leaves if key not in fields]:
            leaf = leaves.pop(key)
            is_new = key in self.known or leaf.origin.layer == "baseline"  # others are refused where they are written
            if is_new and key not in self.overrides.everywhere:
                problems.add(leaf.origin, f"{unknown_key(key, leaf, fields)} (type {kind.name!r})")
        resolved = self._checked(name, kind, line[-1].origin, leaves, problems)
        return resolved if found else None

    def _own(self, name: str, line: Sequence[Section], weak: Leaves) -> dict[Key, Leaf]:
        """The section's ancestors, itself and the command line over what is weaker."""
        leaves = dict(weak)
        for section in line:
            leaves = laid_over(without(leaves, section.unset), section.leaves)
        return laid_over(leaves, self.overrides.of(name))

    def _type(self, name: str, line: Sequence[Section], problems: Problems) -> EvaluatorType | None:
        leaf = self.type_leaf(name, line)
        known = ", ".join(self.types)
        if leaf is None:
            problems.add(line[-1].origin, f"[eval.{name}] has no type, and no section inherits it; one of {known}")
            return None
        written = typed(leaf.value, HEADER["type",])
        if not isinstance(written, str) or written not in self.types:
            near = nearest(RENAMED.get(written, written), self.types) if isinstance(written, str) else ""
            problems.add(leaf.origin, f"unknown type {toml_text(written)}; known types: {known}{near}")
            return None
        return self.types[written]

    def _profile(self, leaf: Leaf | None, problems: Problems) -> Leaves:
        name = CLEAN if leaf is None else typed(leaf.value, HEADER["perturbations",])
        if name in (CLEAN, STRESS):
            origin = Origin("profile", f"profile {name}")
            values = PERTURBATIONS_OFF if name == CLEAN else PERTURBATIONS_STRESS
            return {("env", "perturbation", key): Leaf(value, origin) for key, value in values.items()}
        if name == TRAIN:
            return {}
        if name not in self.profiles and leaf is not None and isinstance(name, str):
            known = dict.fromkeys((*BUILT_IN, *self.profiles))
            problems.add(leaf.origin, f"unknown profile {name!r}; there are {', '.join(known)}{nearest(name, known)}")
        return {("env", "perturbation", *key): leaf for key, leaf in self.profiles.get(str(name), {}).items()}

    def _checked(
        self, name: str, kind: EvaluatorType, origin: Origin, leaves: Leaves, problems: Problems
    ) -> Resolved | None:
        header = validated(
            HeaderSettings, {key: leaf for key, leaf in leaves.items() if len(key) == 1}, problems, origin
        )
        env = validated(SuiteEnvSettings, group_of(leaves, "env"), problems, origin)
        vec = validated(VecSettings, group_of(leaves, "vec"), problems, origin)
        knobs = validated(kind.settings, group_of(leaves, "eval"), problems, origin)
        if header is None or env is None or vec is None or knobs is None:
            return None
        header, leaves = with_implied_record(name, header, leaves, problems)
        resolved = Resolved(name, kind, origin, header, env, vec, knobs, leaves)
        fitted = fitted_to_mode(name, env, knobs, leaves, resolved.origin_of, problems, self.shipped)
        resolved = replace(resolved, knobs=fitted)
        if header.render:
            check_budget(resolved.name, header, knobs, resolved.origin_of, problems)
        if not header.blocking and header.mode not in LASTING:
            problems.add(
                resolved.origin_of(("blocking",)),
                f'blocking = false in [eval.{name}] needs mode = "pool" or "ray", not {header.mode!r}: workers that '
                "stay beside training; change the mode, or remove the line",
            )
        for key, fixed in self.architecture.items():
            if (value := resolved.value(key)) != fixed.value:
                problems.add(
                    resolved.origin_of(key),
                    f"{dotted(key)} = {toml_text(value)} for [eval.{name}], but the checkpoint was trained with "
                    f"{toml_text(fixed.value)} and would misread its input; remove the line, or use another checkpoint",
                )
        return resolved


def group_of(leaves: Leaves, group: str) -> dict[Key, Leaf]:
    """The leaves of one group, by keys relative to it."""
    return {key[1:]: leaf for key, leaf in leaves.items() if len(key) > 1 and key[0] == group}


def baseline_leaves(kind: EvaluatorType) -> dict[Key, Leaf]:
    """The type's baseline as a layer."""
    return _leaves(kind.baseline, Origin("baseline", f"type {kind.name}"))


def architecture_leaves(architecture: Mapping[str, Any], problems: Problems) -> dict[Key, Leaf]:
    """The checkpoint's keys as a layer; what is not architecture is never taken from a checkpoint (E16)."""
    origin = Origin("architecture", "checkpoint")
    for key in architecture:
        if key not in ARCHITECTURE_KEYS:
            problems.add(origin, f"{key!r} is not architecture; a checkpoint may fix {', '.join(ARCHITECTURE_KEYS)}")
    return _leaves({key: value for key, value in architecture.items() if key in ARCHITECTURE_KEYS}, origin)


def _leaves(values: Mapping[str, Any], origin: Origin) -> dict[Key, Leaf]:
    return {
        tuple(key.split(".")): Leaf(None if value is None else plain(value), replace(origin, written=key))
        for key, value in values.items()
    }
