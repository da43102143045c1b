"""How often vaults were opened: `attempts.jsonl` beside the data, one chained line per vault that a run opens.

Whoever owns the data can delete the file, and the report says so. A ledger that is broken or cannot be written stops no
run: the count is then marked as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from skidpad.artifacts.files import held
from skidpad.errors import IntegrityError
from skidpad.runs.chain import Chain, read_chain

LEDGER = "attempts.jsonl"
EVENT = "vault_opened"


def read_attempts(data: Path) -> tuple[list[dict[str, Any]], str]:
    """What the ledger of a dataset says, and its state: "ok" or "broken"."""
    path = data / LEDGER
    if not path.exists():
        return [], "ok"
    try:
        return [event["data"] for event in read_chain(path)], "ok"
    except (IntegrityError, OSError):
        return [], "broken"


def first_release(data: Path, vault_ids: Iterable[str]) -> str | None:
    """Run id of the first run that opened any of these vaults, or None."""
    wanted = set(vault_ids)
    return next((row["run_id"] for row in read_attempts(data)[0] if row["vault_id"] in wanted), None)


def record_attempt(data: Path, run_id: str, vault_id: str) -> tuple[int, str]:
    """Note that a run opens a vault; how often it was opened before, and the state of the ledger.

    The state is "broken" when the chain does not hold, "not writable" when no line could be added.
    """
    path = data / LEDGER
    try:
        with held(path):
            rows, state = read_attempts(data)
            if state == "ok":
                chain = Chain(path)
                try:
                    chain.append(EVENT, {"run_id": run_id, "vault_id": vault_id})
                finally:
                    chain.close()
    except OSError:
        rows, state = read_attempts(data)
        state = "not writable" if state == "ok" else state
    return sum(row["vault_id"] == vault_id for row in rows), state
