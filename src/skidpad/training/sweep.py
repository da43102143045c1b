"""`skidpad sweep`: a small search over named settings of a training, by Optuna (Akiba et al. 2019).

Each trial is a training run of its own, in a folder named by what it tries, so that a search that was stopped goes on
where it was: the journal says what has been tried, the folders how far it came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from skidpad.artifacts.digests import digest_value
from skidpad.errors import MissingExtraError, UsageError

JOURNAL = "sweep.journal"


class Choice(NamedTuple):
    """One setting that is searched: a range, or the values it may have.

    values  as texts; empty for a range
    """

    key: str
    low: float = 0.0
    high: float = 0.0
    logarithmic: bool = False
    whole: bool = False
    values: tuple[str, ...] = ()

    def suggested(self, trial: Any) -> str:
        """What a trial tries, as the command line takes it."""
        if self.values:
            return str(trial.suggest_categorical(self.key, self.values))
        if self.whole:
            return str(trial.suggest_int(self.key, int(self.low), int(self.high), log=self.logarithmic))
        return repr(float(trial.suggest_float(self.key, self.low, self.high, log=self.logarithmic)))


def choice(text: str) -> Choice:
    """`key=a..b`, `key=a..b:log` or `key=x,y,z`. Raises UsageError for anything else."""
    key, equals, value = text.partition("=")
    number = r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
    if found := re.fullmatch(rf"({number})\.\.({number})(:log)?", value):
        low, high = float(found[1]), float(found[2])
        whole = all(re.fullmatch(r"[-+]?[0-9]+", found[k]) for k in (1, 2))
        if low < high and not (found[3] and low <= 0):
            return Choice(key, low, high, bool(found[3]), whole)
    elif equals and key and len(values := [one.strip() for one in value.split(",")]) > 1 and all(values):
        return Choice(key, values=tuple(values))
    raise UsageError(f"--search {text!r}: expected key=low..high, key=low..high:log above 0, or key=one,another.")


def search(
    choices: Sequence[Choice],
    folder: Path,
    run: Callable[[list[str], Path], float | None],
    *,
    trials: int,
    higher: bool,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> tuple[list[str], float]:
    """Search until `trials` have ended; the best settings and their value.

    run     trains with these overrides into that folder; the metric, or None where it has none
    higher  which values are better

    Raises MissingExtraError without Optuna, UsageError where no trial gave a value, and whatever `run` raises: the same
    call goes on.
    """
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise MissingExtraError("sweeps need Optuna: pip install 'skidpad[sweep]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name="sweep",
        storage=JournalStorage(JournalFileBackend(str(folder / JOURNAL))),
        sampler=optuna.samplers.TPESampler(seed=seed),
        direction="maximize" if higher else "minimize",
        load_if_exists=True,
    )
    state = optuna.trial.TrialState
    for stopped in study.get_trials(states=(state.RUNNING,)):
        study.tell(stopped.number, state=state.FAIL)
        study.enqueue_trial(stopped.params)
    while len(study.get_trials(states=(state.COMPLETE, state.PRUNED))) < trials:
        trial = study.ask()
        overrides = [f"{one.key}={one.suggested(trial)}" for one in choices]
        where = folder / f"trial-{digest_value(overrides, 'trial')[:10]}"
        value = run(overrides, where)
        study.tell(trial, value, state=state.PRUNED if value is None else state.COMPLETE)
        say(f"{where.name}: {' '.join(overrides)}: {'no value' if value is None else f'{value:g}'}")
    complete = study.get_trials(states=(state.COMPLETE,))
    if not complete:
        raise UsageError(f"{folder}: no trial gave a value; is the metric computed by an evaluator of the suite?")
    best = study.best_trial
    return [f"{name}={value}" for name, value in best.params.items()], float(best.value or 0.0)
