"""LossReport: what a reader did not carry over, counted by kind (R7), so that no reading is clean silently."""

from __future__ import annotations

from skidpad.scenes.scene import LossEntry

LOSS_PREFIXES = ("dropped_", "repaired_", "assumed_", "ignored_", "unknown_")
LOSS_EXAMPLES = 5
LOSS_EXAMPLE_LENGTH = 200


class LossReport:
    """What a reader dropped, repaired, assumed, ignored or did not know: counted by kind, with the first examples."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._examples: dict[str, list[str]] = {}

    def count(self, kind: str, example: str, times: int = 1) -> None:
        """Add `times` losses of one kind, none when it is 0; `example` says which element, for a person.

        Raises ValueError for a kind that does not start with one of LOSS_PREFIXES.
        """
        if not kind.startswith(LOSS_PREFIXES):
            raise ValueError(f"loss kind {kind!r}: expected a name that starts with one of {', '.join(LOSS_PREFIXES)}")
        if times <= 0:
            return
        self._counts[kind] = self._counts.get(kind, 0) + times
        examples = self._examples.setdefault(kind, [])
        if len(examples) < LOSS_EXAMPLES:
            examples.append(example[:LOSS_EXAMPLE_LENGTH])

    def entries(self) -> dict[str, LossEntry]:
        """Everything counted so far, by kind in alphabetical order."""
        return {kind: LossEntry(self._counts[kind], tuple(self._examples[kind])) for kind in sorted(self._counts)}
