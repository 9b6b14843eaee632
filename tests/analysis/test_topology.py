"""Agreement between seeds: hand-computed cases, invariances, and its level on random coefficients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.topology import agreement, allowed, profile, stack


def upper(size: int) -> np.ndarray:
    return np.triu(np.ones((size, size), dtype=bool), 1)


def columns(*sources: list[float]) -> np.ndarray:
    """p of K steps from the incoming weights of each."""
    p = np.zeros((len(sources) + 1, len(sources) + 1))
    for j, weights in enumerate(sources, start=1):
        p[:j, j] = weights
    return p


def logits(rng: np.random.Generator, seeds: int, depth: int) -> np.ndarray:
    return np.where(upper(depth + 1), rng.normal(size=(seeds, depth + 1, depth + 1)), 0.0)


A = columns([1.0], [0.9, 0.1], [0.2, 0.7, 0.1])
B = columns([1.0], [0.2, 0.8], [0.1, 0.6, 0.3])
C = columns([1.0], [0.6, 0.4], [0.5, 0.2, 0.3])


def test_pearson_is_the_mean_of_numpys_over_pairs() -> None:
    flat = [p[upper(4)] for p in (A, B, C)]
    pairs = [np.corrcoef(flat[a], flat[b])[0, 1] for a, b in ((0, 1), (0, 2), (1, 2))]
    assert agreement(np.stack([A, B, C]), upper(4)).pearson == pytest.approx(np.mean(pairs))


def test_strongest_shortcut_by_hand() -> None:
    """Strongest of steps 2, 3: A 0, 1; B 1, 1; C 0, 0. Pairs agree in AB: 1 of 2, AC: 1 of 2, BC: 0 of 2."""
    found = agreement(np.stack([A, B, C]), upper(4))
    assert found.strongest == pytest.approx(1 / 3)
    assert found.strongest_chance == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert (found.layers, found.seeds) == (2, 3)


def test_chance_of_pearson_is_the_mean_over_all_shuffles() -> None:
    """K = 2 has two shuffles a seed: step 2 as it is, or turned round."""
    first, second = columns([1.0], [0.9, 0.1]), columns([1.0], [0.7, 0.3])
    turned = [columns([1.0], [0.1, 0.9]), columns([1.0], [0.3, 0.7])]
    seen = [
        agreement(np.stack([a, b]), upper(3), permutations=1).pearson
        for a in (first, turned[0])
        for b in (second, turned[1])
    ]
    assert agreement(np.stack([first, second]), upper(3)).pearson_chance == pytest.approx(np.mean(seen))


def test_equal_seeds_agree_wholly_and_are_unlikely_by_chance() -> None:
    p = logits(np.random.default_rng(0), 1, 8).repeat(3, axis=0)
    found = agreement(p, upper(9))
    assert (found.pearson, found.strongest) == (pytest.approx(1.0), pytest.approx(1.0))
    assert found.pearson_p == found.strongest_p == pytest.approx(1 / 1001)


def test_one_seed_has_no_agreement() -> None:
    found = agreement(A[None], upper(4))
    assert (found.pearson, found.pearson_p, found.strongest, found.strongest_p) == (None, None, None, None)


def test_constant_coefficients_agree_by_chance_only() -> None:
    uniform = columns([1.0], [0.5, 0.5], [1 / 3, 1 / 3, 1 / 3])
    found = agreement(np.stack([uniform, uniform]), upper(4))
    assert found.strongest == pytest.approx(found.strongest_chance)
    assert found.strongest_p == 1.0
    assert found.pearson == pytest.approx(1.0)  # steps differ in their mean: all of it is chance
    assert (found.pearson_chance, found.pearson_p) == (pytest.approx(1.0), 1.0)


def test_a_seed_of_equal_coefficients_is_left_out_of_pearson() -> None:
    same = np.where(upper(4), 0.25, 0.0)
    assert agreement(np.stack([same, same]), upper(4)).pearson is None
    assert agreement(np.stack([A, B, same]), upper(4)).pearson == agreement(np.stack([A, B]), upper(4)).pearson


@pytest.mark.parametrize(("depth", "layers"), [(1, 0), (2, 1)])
def test_networks_of_one_and_two_blocks(depth: int, layers: int) -> None:
    p = logits(np.random.default_rng(1), 3, depth)
    found = agreement(p, upper(depth + 1))
    assert found.layers == layers
    assert (found.strongest is None) == (depth == 1)
    assert (found.pearson is None) == (depth == 1)  # one number has no correlation
    assert profile(p).steps == tuple(range(2, depth + 1))


def test_only_trained_coefficients_count() -> None:
    mask = upper(4)
    mask[1, 3] = False
    wild = A.copy()
    wild[1, 3] = 100.0
    assert agreement(np.stack([wild, B]), mask) == agreement(np.stack([A, B]), mask)
    found = agreement(np.stack([A, B]), mask)
    assert found.strongest_chance == pytest.approx(1 / 2)  # two sources at step 2, two at step 3
    assert agreement(np.stack([A, B]), np.zeros((4, 4), dtype=bool)).pearson is None


@settings(max_examples=30)
@given(st.integers(2, 4), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_order_of_seeds_and_scale_do_not_matter(seeds: int, depth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = logits(rng, seeds, depth)
    found = agreement(p, upper(depth + 1), permutations=1)
    turned = agreement(3.5 * p[rng.permutation(seeds)], upper(depth + 1), permutations=1)
    assert turned.pearson == pytest.approx(found.pearson)
    assert turned.strongest == pytest.approx(found.strongest)
    assert found.pearson is not None and -1 - 1e-9 <= found.pearson <= 1 + 1e-9
    assert found.strongest is not None and 0 <= found.strongest <= 1
    if depth > 2:  # the same sources renamed in every seed
        order = [1, 0, *range(2, depth + 1)]
        renamed = p.copy()
        renamed[:, :, 2:] = p[:, order, 2:]
        assert agreement(renamed, upper(depth + 1), permutations=1).strongest == pytest.approx(found.strongest)


def test_random_coefficients_agree_at_the_level_of_chance_with_uniform_p_values() -> None:
    rng = np.random.default_rng(2)
    found = [agreement(logits(rng, 3, 6), upper(7), permutations=99, seed=k) for k in range(300)]
    assert np.mean([one.strongest for one in found]) == pytest.approx(found[0].strongest_chance, abs=0.03)
    assert np.mean([one.pearson for one in found]) == pytest.approx(
        np.mean([one.pearson_chance for one in found]), abs=0.03
    )
    p_values = np.array([one.pearson_p for one in found])
    for level in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert (p_values <= level).mean() == pytest.approx(level, abs=0.08)  # 3 sd of 300 draws
    assert np.mean([one.strongest_p <= 0.05 for one in found]) <= 0.05 + 0.04  # ties make it smaller


def test_shared_structure_is_found() -> None:
    rng = np.random.default_rng(3)
    p = np.exp(logits(rng, 1, 8) + 0.5 * logits(rng, 3, 8)) * upper(9)
    found = agreement(p, upper(9))
    assert found.pearson_p is not None and found.pearson_p < 0.01
    assert found.strongest is not None and found.strongest_chance is not None
    assert found.strongest > 2 * found.strongest_chance


def test_the_same_seed_of_shuffles_gives_the_same_p_value() -> None:
    p = np.stack([A, B, C])
    assert agreement(p, upper(4), seed=7) == agreement(p, upper(4), seed=7)


def test_depth_profile_by_hand() -> None:
    found = profile(np.stack([A, B]))
    assert found.steps == (2, 3)
    assert found.first == pytest.approx(np.array([[0.9, 0.2], [0.2, 0.1]]))
    assert found.previous == pytest.approx(np.array([[0.1, 0.1], [0.8, 0.3]]))
    assert found.middle == pytest.approx(np.array([[0.0, 0.7], [0.0, 0.6]]))
    assert found.mean() == pytest.approx((0.35, 0.325, 0.325))


def test_profile_takes_shares_of_free_weights_and_leaves_steps_without_any() -> None:
    free = columns([1.0], [0.0, 0.0], [-3.0, 0.0, 1.0])
    found = profile(free[None])
    assert (found.steps, found.mean()) == ((3,), pytest.approx((0.75, 0.25, 0.0)))
    assert profile(np.zeros((1, 3, 3))).mean() is None


@settings(max_examples=30)
@given(st.integers(1, 3), st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_profile_shares_sum_to_one(seeds: int, depth: int, seed: int) -> None:
    found = profile(logits(np.random.default_rng(seed), seeds, depth))
    assert found.first + found.previous + found.middle == pytest.approx(np.ones((seeds, depth - 1)))
    assert (found.middle > -1e-12).all()


def test_snapshots_are_stacked_and_must_fit_together(make) -> None:  # type: ignore[no-untyped-def]
    p, trained = stack([make.snapshot(A), make.snapshot(B)])
    assert p.shape == (2, 4, 4) and (trained == upper(4)).all()
    with pytest.raises(ValueError, match="depth"):
        stack([make.snapshot(A), make.snapshot(columns([1.0], [0.5, 0.5]))])
    with pytest.raises(ValueError, match="no topology"):
        stack([])
    mask = upper(4)
    mask[0, 3] = False
    assert (allowed(make.snapshot(A, mask=mask.tolist())) == mask).all()
    assert (allowed(make.snapshot(A)) == upper(4)).all()
