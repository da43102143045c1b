"""Every metric has a page that says what it means, and the page is joined from sources that cannot drift (Q43)."""

from __future__ import annotations

import importlib

import pytest

from skidpad.errors import UsageError
from skidpad.evaluation.metrics import called
from skidpad.evaluation.metrics.explain import (
    EXPLAINED,
    WRITTEN,
    as_markdown,
    as_text,
    explained,
    facts,
    list_text,
    page,
    written_pages,
)


@pytest.mark.parametrize("name", EXPLAINED)
def test_no_registry_line_without_a_page(name: str) -> None:
    """Q43: definition, source, version history, hand example, differences, what it cannot see; a metric that somebody
    adds without them is a number nobody can read."""
    found = page(name)
    assert [part for part in ("definition", *WRITTEN) if not getattr(found, part)] == []
    assert found.metric.source
    versions = [line.partition(":")[0] for line in found.history]
    assert versions == [str(version) for version in range(1, found.metric.version + 1)]


def test_no_page_without_a_registry_line() -> None:
    """A page of a metric that was renamed would explain something that does not exist."""
    assert set(written_pages()) <= set(EXPLAINED)
    assert all(set(part) <= {*WRITTEN, "history"} for part in written_pages().values())


def test_page_shows_what_the_registry_says() -> None:
    """Q43: thresholds on the page are the ones that compute the value, not a copy."""
    told = dict(facts(page("carla_ds_2_0")))
    assert "pedestrian 0.5, vehicle 0.6, static 0.65" in told["parameters"]
    assert told["unit"] == "points, 0 to 100; better: higher"
    assert told["versions"] == "1: first definition"
    assert dict(facts(page("distance")))["unit"] == "m, 0 and above; better: none"


def test_text_and_document_say_the_same() -> None:
    """The terminal and docs/metrics.md show the same facts; only the layout differs."""
    found = page("b2d_smoothness_compat")
    text, section = as_text(found), as_markdown(found)
    assert text.startswith("b2d_smoothness_compat/1\n")
    assert section.startswith("### `b2d_smoothness_compat`\n")
    for heading, said in facts(found):
        assert f"**{heading}**: {said}" in section
        assert " ".join(said.split()) in " ".join(text.split())


def test_unknown_metric_names_the_nearest() -> None:
    """F1: a misspelt name is answered with the right one."""
    with pytest.raises(UsageError, match="did you mean 'b2d_efficiency'"):
        page("b2d_efficency")


def test_list_has_one_line_per_metric() -> None:
    """The list is the registry: as many lines, each with its version and reading aid."""
    lines = list_text().partition("\n\n")[0].splitlines()[1:]
    assert [line.split()[0] for line in lines] == [f"{name}/{line.version}" for name, line in EXPLAINED.items()]
    assert all(line.endswith(EXPLAINED[name].aid) for name, line in zip(EXPLAINED, lines, strict=True))


@pytest.mark.parametrize("name", called.CALLED)
def test_functions_that_no_run_calls_explain_themselves(name: str) -> None:
    """Q43: a score that only a program can ask for is found by the same verb, with the line that reaches it."""
    told = dict(called.facts(name))
    assert told["definition"]
    assert told["read it"]
    module, _, function = told["call it"].removeprefix("from ").partition(" import ")
    assert getattr(importlib.import_module(module), function) is called.CALLED[name].function
    assert f"call it      {told['call it'][:60]}" in explained(name)
    assert name in list_text()
    assert name not in EXPLAINED
