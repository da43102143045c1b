"""Learning against what is known: worlds of computed optimum, gradients of slow twins, masks and cut-off episodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier, Lock
from typing import Any

import numpy as np
import pytest
import torch
from toy_worlds import Bandit, Corridor, Endless, Recall, ToyWorlds

from skidpad.policies.network import ROWS_AT_ONCE, ActorCritic, RowEncoder
from skidpad.policies.shape import NetworkShape
from skidpad.settings.schema import TrainSettings
from skidpad.training.collect import Batch, Collector, advantages
from skidpad.training.distributions import draw, entropy, log_probability
from skidpad.training.ppo import Minibatch, NotFiniteError, filtered, losses, update
from skidpad.training.ranks import Ranks

DRAWING = Lock()


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def learnt(
    worlds: ToyWorlds, actions: int, updates: int, memory: Any = "none", ranks: Ranks | None = None, **keys: Any
) -> Collector:
    """A network after so many updates in some worlds."""
    ranks = ranks or Ranks()
    shape = NetworkShape(((1, worlds.width),), actions, "discrete", (32,), 4, memory, 16 if memory != "none" else 0)
    with DRAWING:  # torch's own generator is one for all threads
        torch.manual_seed(0)
        network = ActorCritic(shape)
    settings = TrainSettings(**{"minibatches": 4, "epochs": 4, "entropy_coefficient": 0.0, "value_clip": 0.0, **keys})
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    draws, order = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    worlds.reset()
    collector = Collector(worlds, network, 12, draws, ranks, bootstrap=settings.bootstrap)
    for number in range(updates):
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * (1 - number / updates)
        batch, _ = collector.collect(settings.gamma, settings.gae_lambda)
        update(network, optimiser, batch, settings, order, ranks)
    return collector


@dataclass(frozen=True)
class Meeting(Ranks):
    """Ranks that are threads of this process: sums over what all have brought to the table."""

    barrier: Barrier = field(default_factory=lambda: Barrier(1))
    table: dict[int, torch.Tensor] = field(default_factory=dict)

    def _sum(self, own: torch.Tensor) -> torch.Tensor:
        self.table[self.number] = own.clone()
        self.barrier.wait(60)
        found = torch.stack([self.table[number] for number in range(self.count)]).sum(0)
        self.barrier.wait(60)
        return found

    def total(self, values: Sequence[float]) -> list[float]:
        return self._sum(torch.tensor(values, dtype=torch.float64)).tolist()

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.copy_(self._sum(parameter.grad))


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_two_ranks_with_half_the_worlds_each_learn_what_one_learns(share: float) -> None:
    """Actions, values, advantages and updates of two ranks are those of one with all the worlds, to the order of
    additions: a mean of means, or draws of their own, would differ at once."""
    keys: dict[str, Any] = {"minibatches": 1, "epochs": 2, "learning_rate": 0.01, "advantage_filter": share}
    one = learnt(Corridor(40), 2, 6, **keys)
    barrier, table = Barrier(2), {}
    with ThreadPoolExecutor(2) as pool:
        ranks = [Meeting(number, 2, barrier, table) for number in range(2)]
        two = list(pool.map(lambda rank: learnt(Corridor(20), 2, 6, ranks=rank, **keys), ranks))
    for alone, *shared in zip(*(each.network.parameters() for each in (one, *two)), strict=True):
        assert torch.equal(*shared)
        torch.testing.assert_close(shared[0], alone, rtol=0, atol=2e-5)


def shown(collector: Collector, width: int) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        out, value, _ = collector.network(torch.eye(width), None)
    return torch.softmax(out, 1).numpy(), value.numpy()


def test_bandit_is_solved() -> None:
    """The best arm of every context is chosen nearly always and valued at 1: a sign error anywhere chooses worse."""
    chosen, value = shown(learnt(Bandit(32), 3, 40, learning_rate=0.01), 4)
    best = [(2 * context) % 3 for context in range(4)]
    assert chosen.argmax(1).tolist() == best
    assert chosen[range(4), best].min() > 0.97
    np.testing.assert_allclose(value, 1.0, atol=0.05)


def test_corridor_has_the_computed_values() -> None:
    """Walking right is best and worth what dynamic programming says, although many walks are cut off on the way: taking
    a cut for an end would halve the values of the far places."""
    chosen, value = shown(learnt(Corridor(40), 2, 60, gamma=0.9, learning_rate=0.01), 6)
    assert (chosen[:5, 1] > 0.9).all()
    np.testing.assert_allclose(value[:5], Corridor.values(0.9), atol=0.06)


def test_what_is_cut_off_goes_on_in_value() -> None:
    """S66: the last row before a cut is bootstrapped from what was seen last. With the first row of the next episode,
    or with 0, the values would differ between rows; so they are all 1 / (1 - gamma)."""
    _, value = shown(learnt(Endless(8), 2, 100, gamma=0.8, learning_rate=0.02), 3)
    np.testing.assert_allclose(value, 1 / (1 - 0.8), rtol=0.03)


def test_a_cut_can_be_an_end() -> None:
    """`train.bootstrap = false`: nothing is worth anything after a cut, so values are the rewards up to it; a guess
    there, or one taken from the next episode, would add to them."""
    _, value = shown(learnt(Endless(8), 2, 100, gamma=0.8, learning_rate=0.02, bootstrap=False), 3)
    np.testing.assert_allclose(value, [1 + 0.8 + 0.64, 1 + 0.8, 1.0], rtol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_what_was_seen_is_remembered(memory: Any) -> None:
    """Only a memory that is carried, cut at episodes and learnt from in whole sequences gets more than half of what
    Recall pays."""
    collector = learnt(Recall(32), 2, 40, memory, learning_rate=0.02, gamma=0.9)
    batch, driven = collector.collect(0.9, 0.95)
    assert driven.reward / driven.drives > 0.95
    assert batch.memory is not None


def test_advantages_equal_the_definition() -> None:
    """GAE is the sum of (gamma lambda)^k delta up to the end of the episode; its cut and its end differ in one term."""
    rng = np.random.default_rng(3)
    reward, value, after = rng.normal(size=(3, 9, 7)).astype(np.float32)
    terminal, truncated = rng.random((2, 9, 7)) < 0.2
    truncated &= ~terminal
    found = advantages(reward, value, after, terminal, truncated, 0.9, 0.8)
    for row in range(7):
        for step in range(9):
            total, factor = 0.0, 1.0
            for k in range(step, 9):
                follows = 0.0 if terminal[k, row] else 0.9 * float(after[k, row])
                total += factor * (float(reward[k, row]) + follows - float(value[k, row]))
                if terminal[k, row] or truncated[k, row]:
                    break
                factor *= 0.9 * 0.8
            assert abs(float(found[step, row]) - total) < 1e-5


def slow_loss(out: np.ndarray, value: np.ndarray, batch: dict[str, np.ndarray], keys: dict[str, float]) -> float:
    """The loss of PPO, one row after another."""
    total = 0.0
    for row in range(len(out)):
        if not batch["weight"][row]:
            continue
        shifted = np.exp(out[row] - out[row].max())
        probability = shifted / shifted.sum()
        ratio = probability[batch["action"][row]] / np.exp(batch["log_prob"][row])
        gain = batch["advantage"][row]
        clipped = min(max(ratio, 1 - keys["clip"]), 1 + keys["clip"])
        total += -min(ratio * gain, clipped * gain)
        moved = min(max(value[row] - batch["value"][row], -keys["value_clip"]), keys["value_clip"])
        target = batch["target"][row]
        worst = max((value[row] - target) ** 2, (batch["value"][row] + moved - target) ** 2)
        total += keys["value_coefficient"] * 0.5 * worst
        total += keys["entropy_coefficient"] * (probability * np.log(probability)).sum()
    return total


def test_gradients_are_those_of_the_slow_loss() -> None:
    """The derivative of each clipped part is easily taken on the wrong side: every number against differences of a loop
    in f64 that knows nothing of tensors."""
    rng = np.random.default_rng(4)
    keys = {"clip": 0.2, "value_clip": 0.3, "value_coefficient": 0.7, "entropy_coefficient": 0.05}
    settings = TrainSettings(**keys)
    rows, actions = 40, 5
    out, value = rng.normal(size=(rows, actions)), rng.normal(size=rows)
    batch = {
        "action": rng.integers(0, actions, rows),
        "log_prob": np.log(rng.uniform(0.1, 0.5, rows)),
        "value": rng.normal(size=rows),
        "advantage": rng.normal(size=rows),
        "target": rng.normal(size=rows),
        "weight": (rng.random(rows) < 0.7).astype(np.float64),
    }
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    part = Minibatch(obs=torch.zeros(rows, 1), reset=None, memory=None, **tensors)
    given, expected = torch.from_numpy(out).requires_grad_(), torch.from_numpy(value).requires_grad_()
    found = losses(given, None, expected, part, settings)
    assert abs(float(found.loss.detach()) - slow_loss(out, value, batch, keys)) < 1e-10
    by_out, by_value = torch.autograd.grad(found.loss, [given, expected])
    step = 1e-6
    for array, gradient in ((out, by_out), (value, by_value)):
        for place in np.ndindex(array.shape):
            sides = []
            for sign in (1, -1):
                moved = array.copy()
                moved[place] += sign * step
                sides.append(slow_loss(moved if array is out else out, moved if array is value else value, batch, keys))
            assert abs((sides[0] - sides[1]) / (2 * step) - float(gradient[place])) < 1e-5


def test_rows_of_a_block_go_through_two_layers_that_know_the_agent() -> None:
    """The encoder against its formula, row by row in float64; the order of rows changes nothing, with and without a
    gradient."""
    torch.manual_seed(0)
    encoder = RowEncoder(4, 3, 7).double()
    rows, known = torch.randn(6, 9, 4, dtype=torch.float64), torch.randn(6, 6, dtype=torch.float64)
    rows[:, 5:] = 0.0
    row, own, out = encoder.row, encoder.own, encoder.out
    expected = torch.empty(6, 7, dtype=torch.float64)
    for agent in range(6):
        seen = []
        for features in rows[agent]:
            scales = torch.cat([features, torch.tanh(8 * features)])
            inner = torch.relu(row.weight @ scales + row.bias + own.weight @ known[agent])
            seen.append(out.weight @ inner + out.bias)
        expected[agent] = torch.relu(torch.stack(seen).amax(0))
    order = torch.randperm(9)
    torch.testing.assert_close(encoder(rows, known), expected)
    torch.testing.assert_close(encoder(rows[:, order], known), expected)
    with torch.inference_mode():
        torch.testing.assert_close(encoder(rows, known), expected)


def test_many_rows_are_seen_as_few_are() -> None:
    """Without a gradient rows go through the network in parts: the same features, to rounding."""
    torch.manual_seed(0)
    network = ActorCritic(NetworkShape(((1, 3), (4, 2)), 5, "discrete", (8,), 4))
    seen = torch.randn(2 * ROWS_AT_ONCE + 7, 11)
    expected = network.encode(seen).detach()
    with torch.inference_mode():
        torch.testing.assert_close(network.encode(seen), expected)


def test_steps_of_little_advantage_are_left_out() -> None:
    """What is filtered is what lies below the share of the deviation, among live rows only; minibatches keep their
    size, and nothing is filtered at 0."""
    generator = torch.Generator().manual_seed(0)
    advantage = torch.randn(8, 50, generator=generator)
    learn = torch.rand(8, 50, generator=generator) < 0.8
    advantage[~learn] = 1e6
    shape = torch.zeros(8, 50)
    batch = Batch(shape[..., None], shape, shape, shape, advantage, shape, learn, shape.bool(), None)
    deviation = float(advantage[learn].double().square().mean().sqrt())
    same, count = filtered(batch, TrainSettings(minibatches=10), Ranks())
    assert same is batch
    assert count == 10
    fewer, count = filtered(batch, TrainSettings(minibatches=10, advantage_filter=0.7), Ranks())
    wanted = learn & (advantage.abs() >= 0.7 * deviation)
    assert torch.equal(fewer.learn, wanted)
    assert 0 < count < 10
    assert abs(wanted.sum() / count - learn.sum() / 10) <= learn.sum() / 10 / count


def test_rows_that_left_teach_nothing() -> None:
    """S65: whatever stands in the rows of drivers that have left, the update is the same to the bit."""

    def after(garbage: float) -> list[torch.Tensor]:
        torch.manual_seed(0)
        network = ActorCritic(NetworkShape(((1, 3), (4, 2)), 5, "discrete", (8,), 4))
        generator = torch.Generator().manual_seed(1)
        steps, rows = 6, 5
        learn = torch.rand(steps, rows, generator=generator) < 0.6
        numbers = {name: torch.randn(steps, rows, generator=generator) for name in ("log_prob", "value", "advantage")}
        numbers = {name: torch.where(learn, array, garbage) for name, array in numbers.items()}
        obs = torch.where(learn[..., None], torch.randn(steps, rows, 11, generator=generator), garbage)
        action = torch.randint(0, 5, (steps, rows), generator=generator)
        batch = Batch(
            obs=obs,
            action=action,
            target=numbers["advantage"] + numbers["value"],
            learn=learn,
            reset=torch.zeros(steps, rows, dtype=torch.bool),
            memory=None,
            **numbers,
        )
        optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
        update(network, optimiser, batch, TrainSettings(), torch.Generator().manual_seed(3), Ranks())
        return [parameter.detach().clone() for parameter in network.parameters()]

    for one, other in zip(after(0.0), after(1e6), strict=True):
        assert torch.equal(one, other)


def test_draws_follow_the_distribution_they_are_weighed_by() -> None:
    """The probability that is learnt from must be that of the draw: frequencies against it, both heads."""
    out = torch.tensor([[0.3, -1.0, 0.9, 0.0]]).expand(40_000, 4)
    numbers = torch.rand(40_000, 4, generator=torch.Generator().manual_seed(0))
    index = draw(out, None, numbers)
    share = torch.bincount(index, minlength=4) / 40_000
    expected = torch.exp(log_probability(out[:4], None, torch.arange(4)))
    torch.testing.assert_close(share, expected, atol=0.01, rtol=0)
    mean, log_std = torch.tensor([[0.2, -0.4]]).expand(40_000, 2), torch.tensor([-0.5, 0.1])
    points = draw(mean, log_std, numbers)
    torch.testing.assert_close(points.mean(0), mean[0], atol=0.02, rtol=0)
    torch.testing.assert_close(points.std(0), torch.exp(log_std), atol=0.02, rtol=0)
    density = torch.distributions.Normal(mean[0], torch.exp(log_std))
    torch.testing.assert_close(log_probability(mean[:9], log_std, points[:9]), density.log_prob(points[:9]).sum(1))
    torch.testing.assert_close(entropy(mean[:1], log_std)[0], density.entropy().sum())


def test_a_loss_that_is_no_number_changes_nothing() -> None:
    """F33: the network and the optimiser are left as they were before the minibatch, which the error carries."""
    collector = learnt(Bandit(8), 3, 1)
    batch, _ = collector.collect(0.9, 0.9)
    network = collector.network
    before = [parameter.detach().clone() for parameter in network.parameters()]
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    broken = batch._replace(target=torch.full_like(batch.target, float("nan")))
    with pytest.raises(NotFiniteError, match="the loss is nan") as caught:
        update(network, optimiser, broken, TrainSettings(), torch.Generator(), Ranks())
    assert torch.isnan(caught.value.minibatch.target).all()
    for parameter, was in zip(network.parameters(), before, strict=True):
        assert torch.equal(parameter, was)
