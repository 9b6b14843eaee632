"""One seed for each stream of random numbers in a run: equal trials draw alike, and no two streams do."""

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """Who draws. The agent's first weights come from the trial's seed itself."""

    ROLLOUT = 1  # starts, goals and the noise of actions, by runner
    REPLAY = 2  # minibatches, by learner
    NOISE = 3  # the actions in the actor's loss, by learner
    EVALUATION = 4  # by training step and runner


def seed_of(seed: int, stream: Stream, *index: int) -> int:
    """In [0, 2^31)."""
    return int(np.random.SeedSequence((seed, stream, *index)).generate_state(1)[0] >> 1)
