"""The memory of a run: a ring of the latest rows of each environment, and hindsight goals drawn from it.

A row is what an environment was in before a step, and what it did:

    state (S) | action (A) | episode | keep          float32

`episode` rises by 1 with every episode of its environment: goals are drawn within one. `keep` is 0 where the step broke
the environment, which ends the episode: such a row is never drawn. Float32 counts episodes exactly up to 2^24.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from envs.base import Contract
from orchestrator.crl.spec import TrainSpec

MAX_DRAWS = 100  # rounds of redrawing broken rows before all are taken to be broken


class Batch(NamedTuple):
    """B pairs and the goal that each reached later."""

    state: Tensor  # (B, S)
    action: Tensor  # (B, A)
    goal: Tensor  # (B, G)


class Replay:
    """Rows of `train.slots` steps of `train.num_envs` environments, allocated once."""

    def __init__(self, train: TrainSpec, contract: Contract, gamma: float, device: torch.device | str = "cpu") -> None:
        self.window, self.gamma = train.window, gamma
        self.state_size, self.row_size = contract.state_size, row_size(contract)
        self.rows = torch.zeros(train.slots, train.num_envs, self.row_size, device=device)
        self.goal_index = torch.tensor(contract.goal_index, device=device)
        # The time of the last kept row of an episode: [environment, episode modulo slots].
        self.ends = torch.full((train.num_envs, train.slots), -1, dtype=torch.int64, device=device)
        self.written = 0  # steps so far; step t lies in slot t modulo slots

    @property
    def filled(self) -> int:
        """Steps that it holds."""
        return min(self.written, len(self.rows))

    def add(self, rows: Tensor) -> None:
        """Take the rows (T, N, F) of the next T steps, T at most the number of slots."""
        slots, count = len(self.rows), len(rows)
        if count > slots or rows.shape[1:] != self.rows.shape[1:]:
            raise ValueError(f"rows of shape {tuple(rows.shape)} do not fit into {tuple(self.rows.shape)}")
        start = self.written % slots
        head = min(count, slots - start)
        self.rows[start : start + head].copy_(rows[:head])
        self.rows[: count - head].copy_(rows[head:])
        self._note_ends(rows.to(self.rows.device), self.written)
        self.written += count

    def _note_ends(self, rows: Tensor, first: int) -> None:
        episode, keep = rows[..., -2].T.long(), rows[..., -1].T  # (N, T)
        time = torch.arange(first, first + len(rows), device=rows.device).where(keep > 0, -1)
        self.ends.scatter_reduce_(1, episode % len(self.rows), time, "amax")

    def sample(self, batch: int, generator: torch.Generator) -> Batch:
        """One minibatch."""
        return next(self.sample_many(1, batch, generator))

    def sample_many(self, count: int, batch: int, generator: torch.Generator) -> Iterator[Batch]:
        """`count` minibatches: all are drawn at once, each is read when it is taken.

        Raises:
            ValueError: the buffer holds no window yet, or broken rows alone.
        """
        anchors, goals = self._draw(count * batch, generator)
        rows = self.rows.view(-1, self.row_size)
        return (
            self._read(rows, a, g) for a, g in zip(anchors.view(count, batch), goals.view(count, batch), strict=True)
        )

    def _read(self, rows: Tensor, anchors: Tensor, goals: Tensor) -> Batch:
        pairs, size = rows.index_select(0, anchors), self.state_size
        return Batch(pairs[:, :size], pairs[:, size:-2], rows[goals[:, None], self.goal_index])

    def _draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Where pairs and goals lie in the rows, both (count), by the distribution of `hindsight`."""
        env, last, time = self._anchors(count, generator)
        episode = self.rows[time % len(self.rows), env, -2].long()
        end = self.ends[env, episode % len(self.rows)].minimum(last)
        uniform = torch.rand(count, generator=generator, device=self.rows.device, dtype=torch.float64)
        goal = time + hindsight(uniform, end - time, self.gamma)
        return self._place(env, time), self._place(env, goal)

    def _anchors(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Environment, last time of its window, and time of `count` rows that are not broken."""
        env, last, time = self._windows(count, generator)
        for _ in range(MAX_DRAWS):
            broken = (self.rows[time % len(self.rows), env, -1] == 0).nonzero().squeeze(1)
            if not len(broken):
                return env, last, time
            env[broken], last[broken], time[broken] = self._windows(len(broken), generator)
        raise ValueError("the replay buffer holds next to no row that is not broken")

    def _windows(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """A window begins at any of the oldest filled - window steps; its last row is no anchor."""
        starts = self.filled - self.window
        if starts < 1:
            raise ValueError(f"the replay buffer holds {self.filled} steps, too few for windows of {self.window}")
        first = self._integers(starts, count, generator) + (self.written - self.filled)
        time = first + self._integers(self.window - 1, count, generator)
        return self._integers(self.rows.shape[1], count, generator), first + self.window - 1, time

    def _integers(self, high: int, count: int, generator: torch.Generator) -> Tensor:
        return torch.randint(high, (count,), generator=generator, device=self.rows.device)

    def _place(self, env: Tensor, time: Tensor) -> Tensor:
        return time % len(self.rows) * self.rows.shape[1] + env

    def state(self) -> dict[str, Any]:
        """What `restore` takes. The rows of a full ring are those in use, not a copy."""
        full = self.filled == len(self.rows)  # of a part, torch.save would write the whole ring
        return {"rows": self.rows if full else self.rows[: self.filled].clone(), "written": self.written}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`.

        Raises:
            ValueError: it is that of a buffer of other sizes.
        """
        rows, written = state["rows"], int(state["written"])
        if rows.shape != (min(written, len(self.rows)), *self.rows.shape[1:]):
            raise ValueError(f"a buffer of {tuple(self.rows.shape)} cannot go on from rows {tuple(rows.shape)}")
        self.written = written
        self.rows[: self.filled].copy_(rows)
        self.ends.fill_(-1)
        oldest = self.written - self.filled
        split = oldest % len(self.rows) if self.filled == len(self.rows) else 0
        self._note_ends(self.rows[split : self.filled], oldest)
        if split:
            self._note_ends(self.rows[:split], oldest + len(self.rows) - split)


def row_size(contract: Contract) -> int:
    """F = S + A + 2."""
    return contract.state_size + contract.action_size + 2


def hindsight(uniform: Tensor, later: Tensor, gamma: float) -> Tensor:
    """How many steps later the goal is: k in 1 .. n with probability proportional to gamma^k, or 0 where n = 0.

    Inverse of the truncated geometric distribution's function: k = ceil(log(1 - u (1 - gamma^n)) / log gamma).

    Args:
        uniform: u in [0, 1), float64.
        later: n, the rows after this one in the same episode and window.
    """
    most = -torch.expm1(later * math.log(gamma))  # 1 - gamma^n
    steps = (torch.log1p(-uniform * most) / math.log(gamma)).ceil().long()
    return steps.clamp(min=1).minimum(later)
