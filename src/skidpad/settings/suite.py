"""A suite: files, checkpoint, type, profile, section and command line, stacked into frozen evaluator specs.

Public API; `load_suite` is the one loader every program of ours uses (E20).
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from skidpad.settings.leaves import Origin
from skidpad.settings.schema import ActionSelection, EnvSettings, EvalKnobs, ManagerSettings, VecSettings

__all__ = ["EvaluatorSpec", "EvaluatorType", "Origin", "Suite", "load_suite"]


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


@dataclass(frozen=True)
class EvaluatorSpec:
    """One resolved section. Frozen; `tree` is a new dict at every access."""

    name: str
    type: str
    enabled: bool
    interval: int
    at_start: bool
    at_end: bool
    action_selection: ActionSelection
    seed: int | None
    benchmark_seed: int
    profile: str
    record: Literal["states"]
    keep_traces: Literal["selected", "all", "none"]
    env: EnvSettings
    vec: VecSettings
    eval: EvalKnobs
    scenes: tuple[pathlib.Path, ...]
    scenes_text: tuple[str, ...]
    origins: Mapping[str, Origin]

    @property
    def tree(self) -> dict[str, Any]:
        """The resolved section as plain tables, defaults included."""
        raise NotImplementedError

    def section_digest(self, scene_digests: Sequence[str]) -> str:
        """Digest of everything that can change a result (E18). `scene_digests`: of the scenes that run, any order."""
        raise NotImplementedError


class Suite:
    """A loaded suite. `names` are the live sections in file order, disabled ones included."""

    path: pathlib.Path
    manager: ManagerSettings
    names: tuple[str, ...]

    def spec(self, name: str) -> EvaluatorSpec:
        """The resolved section. Raises SettingsError for an unknown name, a template, or a disabled section whose
        paths do not hold."""
        raise NotImplementedError

    def print_config(self, evaluator: str | None = None) -> str:
        """Legal TOML of one live section or all, each value with its origin in a comment (E17)."""
        raise NotImplementedError


def load_suite(
    path: pathlib.Path,
    overrides: Sequence[str] = (),
    *,
    types: Mapping[str, EvaluatorType],
    environ: Mapping[str, str] | None = None,
    architecture: Mapping[str, Any] | None = None,
    library: Callable[[str], Sequence[pathlib.Path]] | None = None,
) -> Suite:
    """Read, merge and check a suite. Raises SettingsError listing up to 20 problems, each with file and line.

    overrides     `env.K=v`, `vec.K=v` and `eval.KNOB=v` for every section; `eval.NAME.K=v` for one, and stronger
    environ       for `${NAME}` in paths; default: the process's
    architecture  dotted keys a checkpoint fixes (`schema.ARCHITECTURE_KEYS`)
    library       finds bundled scenes for `library:<glob>`; default: the package's own
    """
    raise NotImplementedError
