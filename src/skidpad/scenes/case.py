"""Case: the atom of evaluation and of pairing, and where its seed comes from.

A case is (scene, benchmark seed, replicate), and the ego when one scene gives several. Its id and its seed depend on
nothing else: not on training, shards, workers, batches or order. Simulation, evaluation and streaming take it from
here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from skidpad.artifacts.digests import digest_value

CASE_ID_LENGTH = 20
SCENE_EGO = -1


@dataclass(frozen=True)
class Case:
    """One thing to evaluate.

    scene_digest    identity of the scene
    scene_id        its name, for people; no part of the identity
    benchmark_seed  0 is a seed like any other
    replicate       0, 1, ... when a scene is run more than once
    ego             track under test; SCENE_EGO where the evaluator's own rule chooses
    """

    scene_digest: str
    scene_id: str
    benchmark_seed: int
    replicate: int = 0
    ego: int = SCENE_EGO

    @cached_property
    def digest(self) -> str:
        """Full digest of the identity (64 hexadecimal digits)."""
        identity: dict[str, object] = {
            "scene": self.scene_digest,
            "benchmark_seed": self.benchmark_seed,
            "replicate": self.replicate,
        }
        if self.ego != SCENE_EGO:
            identity["ego"] = self.ego
        return digest_value(identity, "case")

    @property
    def id(self) -> str:
        """The first 20 digits of the digest: how a case is called in files and on the command line."""
        return self.digest[:CASE_ID_LENGTH]

    @property
    def seed(self) -> int:
        """Unsigned 64-bit seed of everything random in the case."""
        return int(digest_value(self.digest, "case seed")[:16], 16)
