"""`skidpad sweep`: what is searched, and that a search that was stopped goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from skidpad.errors import UsageError
from skidpad.training.sweep import Choice, choice, search


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.learning_rate=1e-4..1e-2:log", Choice("train.learning_rate", 1e-4, 1e-2, True, False)),
        ("train.rows=16..64", Choice("train.rows", 16.0, 64.0, False, True)),
        ("policy.memory=none, gru", Choice("policy.memory", values=("none", "gru"))),
    ],
)
def test_choices_are_read(text: str, expected: Choice) -> None:
    """Ranges of whole and of real numbers, on a log scale, and lists."""
    assert choice(text) == expected


@pytest.mark.parametrize("text", ["train.gamma", "train.gamma=0.9", "a=2..1", "a=0..1:log", "=1,2", "a=1,,2"])
def test_what_is_no_choice_is_refused(text: str) -> None:
    """An empty range or a single value would search nothing."""
    with pytest.raises(UsageError, match="expected key="):
        choice(text)


def test_a_search_that_was_stopped_goes_on(tmp_path: Path) -> None:
    """The settings of the trial that was running are tried again in the same folder, finished ones never; the best is
    found among all."""
    pytest.importorskip("optuna", reason="the extra `sweep` is not installed")
    ran: list[tuple[str, ...]] = []

    def run(overrides: list[str], folder: Path) -> float | None:
        ran.append((*overrides, folder.name))
        if len(ran) == 3:
            raise KeyboardInterrupt
        (value,) = [float(one.partition("=")[2]) for one in overrides if one.startswith("train.gamma=")]
        return None if len(ran) == 2 else -((value - 0.95) ** 2)

    choices = [choice("train.gamma=0.9..0.99"), choice("policy.encoder=8,16")]
    with pytest.raises(KeyboardInterrupt):
        search(choices, tmp_path, run, trials=6, higher=True, say=lambda text: None)
    best, value = search(choices, tmp_path, run, trials=6, higher=True, say=lambda text: None)
    assert ran[3] == ran[2]
    assert len(ran) == 7
    scored = [one for number, one in enumerate(ran) if number not in (1, 2)]
    closest = min(scored, key=lambda one: abs(float(one[0].partition("=")[2]) - 0.95))
    assert set(best) == set(closest[:2])
    assert value == pytest.approx(-((float(closest[0].partition("=")[2]) - 0.95) ** 2))
