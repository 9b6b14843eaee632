"""Which images are in which batch. A batch follows from the seed and its place alone, so a resumed run needs no saved
position, and the same images are drawn however many workers share a step."""

from __future__ import annotations

import numpy as np

from orchestrator.images.base import Batch, Images, Numbers


class Stream:
    """Endless training images: pass after pass over all of them, each pass shuffled anew by `seed`."""

    def __init__(self, images: Images, seed: int) -> None:
        self.images, self.seed = images, seed
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def numbers(self, first: int, count: int) -> Numbers:
        """The images at places first .. first + count - 1 of the stream, (count,)."""
        places = np.arange(first, first + count)
        return np.concatenate([self._numbers(epoch, places) for epoch in np.unique(places // len(self.images))])

    def batch(self, first: int, count: int) -> Batch:
        """These images, varied as training does: flips and noise follow from (seed, place)."""
        draws = [np.random.default_rng((self.seed, 1, place)) for place in range(first, first + count)]
        return self.images.read(self.numbers(first, count), draws)

    def _numbers(self, epoch: int, places: Numbers) -> Numbers:
        if epoch != self._epoch:
            self._order = np.random.default_rng((self.seed, 0, epoch)).permutation(len(self.images))
            self._epoch = epoch
        size = len(self.images)
        numbers: Numbers = self._order[places[places // size == epoch] % size]
        return numbers
