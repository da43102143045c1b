"""A suite: files, checkpoint, type, profile, section and command line, stacked into frozen evaluator specs.

`load_suite` is the one loader every program of ours uses (E20). A suite is checked as a whole when it is loaded;
only the paths of disabled sections wait until such a section is asked for by name.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel

from skidpad.artifacts.digests import digest_value
from skidpad.errors import SettingsError, nearest
from skidpad.settings.checking import MANAGER, fields_of, section_fields, unknown_key, validated
from skidpad.settings.leaves import Key, Leaf, Leaves, Origin, Problems, dotted, laid_over
from skidpad.settings.overrides import Overrides, read_overrides
from skidpad.settings.printing import manager_text, profile_text, section_text, training_text
from skidpad.settings.render_rules import DRAWN, DRAWN_KNOBS
from skidpad.settings.scene_paths import Library, find_scenes
from skidpad.settings.schema import (
    BASELINE_NAMES,
    ActionSelection,
    BackendName,
    EnvSettings,
    EvalKnobs,
    ManagerSettings,
    ModeName,
    PerturbationSettings,
    RecordLevel,
    SuiteEnvSettings,
    VecSettings,
    ViewName,
)
from skidpad.settings.sections import GROUPS, OrderError, Sections, as_tuple, read_sections
from skidpad.settings.stack import BUILT_IN, EvaluatorType, Resolved, Stack, architecture_leaves, group_of
from skidpad.settings.training import KNOWN as TRAINING_KEYS
from skidpad.settings.training import TrainingSpec, Unplaced, training_of
from skidpad.settings.weights import Weights, find_weights

__all__ = ["EvaluatorSpec", "EvaluatorType", "Origin", "Suite", "load_suite"]

SCENES, BASELINES = ("env", "scenes"), ("eval", "baselines")
MANAGER_KEYS = {("eval", *key): kind for key, kind in MANAGER.items()}
NOWHERE = Origin("base", "suite")
WHERE = ("mode", "blocking", "timeout_seconds")
"""Keys that decide where and how long a section runs, and change no record."""


@dataclass(frozen=True)
class EvaluatorSpec:
    """One resolved section, immutable down to its leaves."""

    name: str
    type: str
    enabled: bool
    interval: int
    at_start: bool
    at_end: bool
    action_selection: ActionSelection
    mode: ModeName
    blocking: bool
    timeout_seconds: float | None
    seed: int | None
    benchmark_seed: int
    profile: str
    record: RecordLevel
    keep_traces: Literal["selected", "all", "none"]
    render: bool
    render_interval: int | None
    render_at_end: bool
    render_views: tuple[ViewName, ...]
    render_backend: tuple[BackendName, ...]
    render_select: str | tuple[str, ...]
    env: EnvSettings
    vec: VecSettings
    eval: EvalKnobs
    scenes: tuple[pathlib.Path, ...]
    scenes_text: tuple[str, ...]
    weights: tuple[Weights, ...]
    origin_items: tuple[tuple[str, Origin], ...]

    @property
    def origins(self) -> dict[str, Origin]:
        """Where each value came from, by dotted key; a new dict at every access."""
        return dict(self.origin_items)

    @property
    def tree(self) -> dict[str, Any]:
        """The resolved section as plain tables of JSON values, defaults included; `env.scenes` as it was written."""
        tree: dict[str, Any] = {
            "type": self.type,
            "enabled": self.enabled,
            "interval": self.interval,
            "at_start": self.at_start,
            "at_end": self.at_end,
            "perturbations": self.profile,
            "action_selection": self.action_selection,
            "mode": self.mode,
            "blocking": self.blocking,
            "timeout_seconds": self.timeout_seconds,
            "seed": self.benchmark_seed,
            "record": self.record,
            "keep_traces": self.keep_traces,
            **{key: list(value) if isinstance(value, tuple) else value for key, value in self._drawn()},
        }
        for name, group in (("env", self.env), ("vec", self.vec), ("eval", self.eval)):
            tree[name] = group.model_dump(mode="json")
        tree["env"]["scenes"] = list(self.scenes_text)
        return tree

    def _drawn(self) -> list[tuple[str, Any]]:
        return [(key, getattr(self, key)) for key in DRAWN]

    def section_digest(self, scene_digests: Sequence[str]) -> str:
        """Digest of everything that can change a result (E18).

        Left out are the name, when and where the section runs, what is drawn, how many worlds and threads share the
        work, whether lists are kept or computed, and whose weights drive beside the baselines, who have a digest of
        their own; the scenes stand in it by content.

        scene_digests  of the scenes the evaluator runs, in any order
        """
        tree = self.tree
        for key in ("enabled", "interval", "at_start", "at_end", "perturbations", *WHERE, *DRAWN):
            del tree[key]
        for key in DRAWN_KNOBS:
            del tree["eval"][key]
        for key in ("lists", "list_budget_mib"):
            del tree["env"][key]
        tree["env"]["scenes"] = sorted(scene_digests)
        tree["eval"]["baselines"] = [name for name in self.eval.baselines if name in BASELINE_NAMES]
        tree["vec"] = {"infer_batch": self.vec.infer_batch}
        return digest_value(tree, "section")

    def document(self) -> dict[str, Any]:
        """The whole section as JSON values, for a process that reads no other configuration (E38)."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        del plain["origin_items"]
        groups = {name: plain[name].model_dump(mode="json") for name in ("env", "vec", "eval")}
        weights = [[name, str(path)] for name, path in self.weights]
        return {**plain, **groups, "scenes": [str(path) for path in self.scenes], "weights": weights}


def spec_of(document: Mapping[str, Any], kind: EvaluatorType) -> EvaluatorSpec:
    """The section of an `EvaluatorSpec.document`, without its origins. Raises ValueError for anything else."""
    groups: dict[str, type[BaseModel]] = {"env": EnvSettings, "vec": VecSettings, "eval": kind.settings}
    models = {name: model.model_validate_json(json.dumps(document[name])) for name, model in groups.items()}
    lists = {key: tuple(value) for key, value in document.items() if isinstance(value, list)}
    scenes = tuple(pathlib.Path(path) for path in document["scenes"])
    weights = tuple(Weights(name, pathlib.Path(path)) for name, path in document["weights"])
    return EvaluatorSpec(**{**document, **lists, **models, "scenes": scenes, "weights": weights, "origin_items": ()})


def recorded_spec(name: str, tree: Mapping[str, Any], kind: EvaluatorType) -> EvaluatorSpec:
    """The section whose `EvaluatorSpec.tree` a manifest holds, without its files and origins. Raises ValueError for
    anything else."""
    plain = {key: value for key, value in tree.items() if key != "perturbations"}
    env = {key: value for key, value in tree["env"].items() if key != "scenes"}
    more = {"name": name, "profile": tree["perturbations"], "benchmark_seed": tree["seed"]}
    return spec_of(
        {**plain, **more, "env": env, "scenes": [], "weights": [], "scenes_text": tree["env"]["scenes"]}, kind
    )


class Suite:
    """A loaded suite.

    path     the file it was loaded from
    manager  plain settings of `[eval]`
    names    live sections in file order, disabled ones included
    training what is trained, in a suite with [train]
    """

    def __init__(
        self,
        path: pathlib.Path,
        manager: ManagerSettings,
        manager_leaves: Leaves,
        sections: Sections,
        resolved: Mapping[str, Resolved],
        specs: Mapping[str, EvaluatorSpec],
        training: TrainingSpec | None,
        environ: Mapping[str, str],
        library: Library,
    ) -> None:
        self.path = path
        self.manager = manager
        self.names = tuple(resolved)
        self._manager_leaves = manager_leaves
        self._sections = sections
        self._resolved = resolved
        self._environ = environ
        self._library = library
        self._specs = dict(specs)
        self.training = training

    def spec(self, name: str) -> EvaluatorSpec:
        """The resolved section. Raises SettingsError for an unknown name, a template, or a disabled section whose
        paths do not hold."""
        self._refuse_if_not_live(name)
        if name not in self._specs:
            problems = Problems()
            scenes = _scenes(self._resolved[name], self._environ, self._library, problems)
            weights = _weights(self._resolved[name], self._environ, problems)
            problems.raise_if_any()
            self._specs[name] = _spec(self._resolved[name], self.manager, scenes, weights)
        return self._specs[name]

    def print_config(self, evaluator: str | None = None) -> str:
        """Legal TOML of one live section or all, each value with its origin in a comment (E17)."""
        if evaluator is not None:
            self._refuse_if_not_live(evaluator)
        chosen = [self._resolved[name] for name in self.names if evaluator in (None, name)]
        profiles = dict.fromkeys(one.header.perturbations for one in chosen)
        parts = [manager_text(self.manager, self._manager_leaves)]
        if self.training is not None and evaluator is None:
            parts.insert(0, training_text(self.training.lines()))  # top-level keys, before the first table
        parts += [profile_text(name, self._sections.profiles[name]) for name in profiles if name not in BUILT_IN]
        parts += [section_text(one, partial(_folder, one), self._environ) for one in chosen]
        return "\n".join(parts)

    def _refuse_if_not_live(self, name: str) -> None:
        if name in self._resolved:
            return
        if name in self._sections.named:
            raise SettingsError(f"{self.path}: {name!r} is a template and cannot run; name a section that inherits it")
        known = ", ".join(self.names) or "none"
        raise SettingsError(f"{self.path}: no evaluator {name!r}{nearest(name, self.names)}; there are: {known}")


def load_suite(
    path: pathlib.Path,
    overrides: Sequence[str] = (),
    *,
    types: Mapping[str, EvaluatorType],
    environ: Mapping[str, str] | None = None,
    architecture: Mapping[str, Any] | None = None,
    library: Library | None = None,
) -> Suite:
    """Read, merge and check a suite. Raises SettingsError listing up to 20 problems, each with file and line.

    overrides     `K=v` for every section, K as in a section; `eval.NAME.K=v` for one, and stronger
    environ       for `${NAME}` in paths; default: the process's
    architecture  dotted keys a checkpoint fixes (`schema.ARCHITECTURE_KEYS`)
    library       finds bundled scenes for `library:<glob>`; default: the package's own
    """
    environ = dict(os.environ if environ is None else environ)
    library = library or _bundled_scenes
    problems = Problems()
    sections = read_sections(path, environ, problems)
    known = section_fields([EvalKnobs, *(kind.settings for kind in types.values())])
    given = read_overrides(overrides, sections, known, problems, more=TRAINING_KEYS if sections.trains else ())
    _refuse_unknown(sections, known, problems)
    _check_shared(sections, problems)
    manager, manager_leaves = _manager(sections, given, problems)
    stack = Stack(
        base=sections.base,
        architecture=architecture_leaves(architecture or {}, problems),
        profiles=sections.profiles,
        overrides=given,
        types=types,
        known=known,
        shipped=_bundled_drivers(),
    )
    resolved = _resolve_live(sections, stack, problems)
    training = training_of(sections, given, problems)
    enabled = [one for one in resolved.values() if one.header.enabled]
    scenes = {one.name: _scenes(one, environ, library, problems) for one in enabled}
    weights = {one.name: _weights(one, environ, problems) for one in enabled}
    problems.raise_if_any()
    assert manager is not None  # else there was a problem
    spec = _placed(training, environ, library)
    specs = {one.name: _spec(one, manager, scenes[one.name], weights[one.name]) for one in enabled}
    return Suite(path, manager, manager_leaves, sections, resolved, specs, spec, environ, library)


def _placed(training: Unplaced | None, environ: Mapping[str, str], library: Library) -> TrainingSpec | None:
    """With its scene files. Raises SettingsError for paths that do not hold."""
    if training is None:
        return None
    problems = Problems()
    found: list[pathlib.Path] = []
    for entry in training.scenes_text:
        origin = training.scenes_origin
        folder = pathlib.Path(origin.source).parent if origin.line is not None else pathlib.Path()
        try:
            found += find_scenes(entry, folder, environ, library)
        except ValueError as error:
            problems.add(origin, f"scenes of [train]: {error}")
    problems.raise_if_any()
    return training.placed(found)


def _bundled_scenes(pattern: str) -> Sequence[pathlib.Path]:
    # Imported only when a suite names bundled scenes: the settings stand below the scenes and must load without them.
    from skidpad.scenes.library import library_scenes

    return library_scenes(pattern)


def _bundled_drivers() -> Mapping[str, pathlib.Path]:
    from skidpad.policies.library import library_drivers  # as above

    return library_drivers()


def _refuse_unknown(sections: Sections, known: Mapping[Key, Any], problems: Problems) -> None:
    """Keys no section of any type could have, in templates too."""
    at_the_top = {**{key: kind for key, kind in known.items() if key[0] in GROUPS}, **MANAGER_KEYS}
    _refuse_unknown_in(sections.base, sections.base_tables, at_the_top, problems)
    for section in sections.named.values():
        _refuse_unknown_in(section.leaves, section.tables, known, problems)
        for key, origin in section.unset.items():
            if key not in known and key not in _tables_of(known):
                leaf = Leaf(None, replace(origin, written=dotted(key)))
                problems.add(origin, f"unset: {unknown_key(key, leaf, known)}")


def _refuse_unknown_in(
    leaves: Leaves, tables: Mapping[Key, Origin], known: Collection[Key], problems: Problems
) -> None:
    for key, leaf in leaves.items():
        if key not in known:
            problems.add(leaf.origin, unknown_key(key, leaf, known))
    for key in tables.keys() - _tables_of(leaves) - _tables_of(known):
        problems.add(tables[key], unknown_key(key, Leaf(None, tables[key]), known))


def _tables_of(keys: Iterable[Key]) -> set[Key]:
    return {key[:depth] for key in keys for depth in range(len(key))}


def _check_shared(sections: Sections, problems: Problems) -> None:
    """What stands outside the sections, whether or not some section uses it."""
    for group, model in (("env", SuiteEnvSettings), ("vec", VecSettings)):
        leaves = {key: leaf for key, leaf in group_of(sections.base, group).items() if key in fields_of(model)}
        validated(model, leaves, problems, NOWHERE)
    perturbations = fields_of(PerturbationSettings)
    for name, profile in sections.profiles.items():
        for key, leaf in profile.items():
            if name in BUILT_IN:
                problems.add(leaf.origin, f"[perturbations.{name}] is built in; choose another name")
            elif key not in perturbations:
                near = nearest(dotted(key), map(dotted, perturbations))
                sentence = f"{dotted(key)!r} is no perturbation, and a profile holds nothing else{near}"
                problems.add(leaf.origin, f"[perturbations.{name}] {sentence}")
        good = {key: leaf for key, leaf in profile.items() if key in perturbations}
        validated(PerturbationSettings, good, problems, NOWHERE)


def _manager(sections: Sections, given: Overrides, problems: Problems) -> tuple[ManagerSettings | None, Leaves]:
    both = group_of(laid_over(sections.base, given.everywhere), "eval")
    leaves = {key: leaf for key, leaf in both.items() if key in MANAGER}
    return validated(ManagerSettings, leaves, problems, NOWHERE), leaves


def _resolve_live(sections: Sections, stack: Stack, problems: Problems) -> dict[str, Resolved]:
    """Every section that is not a template, in file order."""
    inherited = {parent for section in sections.named.values() for parent in section.parents}
    resolved = {}
    for name, section in sections.named.items():
        try:
            line = sections.lineage(name)
        except OrderError as error:
            _add_order_problem(sections, error, problems)
            continue
        is_template = section.is_abstract or (name in inherited and stack.type_leaf(name, line) is None)
        if not is_template and (one := stack.resolved(name, line, problems)):
            resolved[name] = one
    return resolved


def _add_order_problem(sections: Sections, error: OrderError, problems: Problems) -> None:
    names = list(error.chain)
    if len(names) > 1 and names[0] == names[-1]:  # every member of a circle finds it, from its own end: one problem
        start = names.index(min(names))
        names = names[start:-1] + names[:start] + [names[start]]
    chain = " -> ".join(names) if len(names) > 1 else f"{names[0]} -> [{', '.join(sections.named[names[0]].parents)}]"
    problems.add(sections.named[names[0]].inherits, f"[eval.{names[0]}] inherits in {error} ({chain})")


def _folder(one: Resolved, key: Key) -> pathlib.Path:
    """What relative paths under a key are relative to: the file that wrote it, else the working directory (E13)."""
    origin = one.origin_of(key)
    return pathlib.Path(origin.source).parent if origin.line is not None else pathlib.Path()


def _scenes(
    one: Resolved, environ: Mapping[str, str], library: Library, problems: Problems
) -> tuple[pathlib.Path, ...]:
    """The section's scene files; what is wrong with its paths goes to `problems`."""
    entries = as_tuple(one.env.scenes)
    if not entries:
        problems.add(one.origin, f'[eval.{one.name}] needs env.scenes: a path, a list of paths, or "library:*"')
        return ()
    found: list[pathlib.Path] = []
    is_complete = True
    for entry in entries:
        try:
            found += find_scenes(entry, _folder(one, SCENES), environ, library)
        except ValueError as error:
            problems.add(one.origin_of(SCENES), f"env.scenes of [eval.{one.name}]: {error}")
            is_complete = False
    wanted, present = one.knobs.num_scenarios, len(set(found))
    on_logs = one.env.simulation_mode == "replay"  # a bare map has as many episodes as one asks for
    if on_logs and is_complete and wanted is not None and wanted > present:
        origin = one.origin_of(("eval", "num_scenarios"))
        sentence = f"eval.num_scenarios = {wanted}, but env.scenes of [eval.{one.name}] has {present} scenes"
        problems.add(origin, f"{sentence}; ask for fewer, or for several cases a scene with eval.replicates")
    return tuple(found)


def _weights(one: Resolved, environ: Mapping[str, str], problems: Problems) -> tuple[Weights, ...]:
    """The files of the section's drivers with weights; those that are not there go to `problems`."""
    shipped, folder, origin = _bundled_drivers(), _folder(one, BASELINES), one.origin_of(BASELINES)
    found = []
    for entry in one.knobs.baselines:
        try:
            found.append(find_weights(entry, folder, environ, shipped))
        except ValueError as error:
            problems.add(origin, f"eval.baselines of [eval.{one.name}], {entry!r}: {error}")
    return tuple(one for one in found if one is not None)


def _spec(
    one: Resolved, manager: ManagerSettings, scenes: tuple[pathlib.Path, ...], weights: tuple[Weights, ...]
) -> EvaluatorSpec:
    header = one.header
    keys = section_fields([one.type.settings])
    return EvaluatorSpec(
        name=one.name,
        type=one.type.name,
        enabled=header.enabled,
        interval=header.interval,
        at_start=header.at_start,
        at_end=header.interval > 0 if header.at_end is None else header.at_end,
        action_selection=header.action_selection,
        mode=header.mode,
        blocking=header.blocking,
        timeout_seconds=header.timeout_seconds,
        seed=header.seed,
        benchmark_seed=manager.benchmark_seed if header.seed is None else header.seed,
        profile=header.perturbations,
        record=header.record,
        keep_traces=header.keep_traces,
        render=header.render,
        render_interval=header.render_interval,
        render_at_end=header.render_interval != 0 if header.render_at_end is None else header.render_at_end,
        render_views=header.render_views,
        render_backend=header.render_backend,
        render_select=header.render_select,
        env=EnvSettings(**{name: getattr(one.env, name) for name in EnvSettings.model_fields}),
        vec=one.vec,
        eval=one.knobs,
        scenes=scenes,
        scenes_text=as_tuple(one.env.scenes),
        weights=weights,
        origin_items=tuple((dotted(key), one.origin_of(key)) for key in keys),
    )
