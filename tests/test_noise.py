"""The generator: Random123's known answers, the law of the numbers, their independence, and that a place has its number.

Null law of all statistical tests here: independent standard normals, or uniforms on (0, 1), with fixed seeds. Sums of many
terms are compared with the normal law by their exact variance; the least p-value of a family is corrected for their number.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tests.statistics as statistics
from tiltwalk import noise

WORDS = noise.seed(20220923)
BOUND = statistics.LEVEL / 9  # nine tests of what should hold: the family together has the chance LEVEL of failing
STEPS, CHAINS, SHAPE = 64, 48, (5, 1, 9)

_home: Any = jax if hasattr(jax, "enable_x64") else jax.experimental


def draw(
    *,
    words: Any = WORDS,
    steps: Any = range(STEPS),
    chains: Any = range(CHAINS),
    part: int = 0,
    last: bool = True,
    dtype: Any = np.float32,
    shape: tuple[int, int, int] = SHAPE,
) -> Any:
    """The noise of some steps and chains."""
    return jax.tree.map(
        np.asarray,
        noise.steps_noise(
            words,
            jnp.asarray(steps, jnp.uint32),
            part,
            shape,
            jnp.asarray(chains, jnp.uint32),
            last=last,
            dtype=np.dtype(dtype),
        ),
    )


def flat_normals(**given: Any) -> np.ndarray:
    """Normals as `(steps, elements, chains)`."""
    normal = draw(**given).normal.astype(np.float64)
    return normal.reshape(len(normal), -1, normal.shape[-1])


# ---- the block function ----


@pytest.mark.parametrize(
    ("key", "counter", "answer"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers_of_random123(key: Any, counter: Any, answer: Any) -> None:
    made = noise.threefry(*(tuple(jnp.uint32(word) for word in words) for words in (key, counter)))
    assert tuple(int(word) for word in made) == answer


def test_threefry_is_the_block_function_of_jax() -> None:
    rng = np.random.default_rng(3)
    key, x, y = (jnp.asarray(rng.integers(2**32, size=n, dtype=np.uint32)) for n in (2, 512, 512))
    ours = jnp.concatenate(noise.threefry((key[0], key[1]), (x, y)))
    np.testing.assert_array_equal(ours, jax.extend.random.threefry_2x32(key, jnp.concatenate([x, y])))


def test_a_normal_is_box_muller_to_the_last_digits() -> None:
    """Against float64: the radius from the high bits of the first word, the angle from all bits of the second."""
    rng = np.random.default_rng(4)
    first, second = rng.integers(2**32, size=(2, 200_000), dtype=np.uint32)
    first[:4], second[:4] = [0, 0, 2**32 - 1, 2**32 - 1], [0, 2**32 - 1, 0, 2**32 - 1]
    uniform = ((first >> 8).astype(float) + 0.5) / 2**24
    angle = (second >> 30) * np.pi / 2 + (second << np.uint32(2)).astype(np.int32) * (np.pi / 4 / 2**31)
    expected = np.sqrt(-2 * np.log(uniform)) * np.cos(angle)
    made = np.asarray(noise.normal((jnp.asarray(first), jnp.asarray(second))))
    assert made.dtype == np.float32
    # the rounding of the uniform number, as it comes through the radius
    from_rounding = 6e-8 / (uniform * np.sqrt(-2 * np.log(uniform)))
    assert np.all(np.abs(made - expected) <= 1e-6 + from_rounding)


# ---- the law ----


def moments_p(x: np.ndarray) -> float:
    """One p-value for the first, second, third, fourth and sixth moments; each power's variance is the normal law's own."""
    expected, variance = {1: 0, 2: 1, 3: 0, 4: 3, 6: 15}, {1: 1, 2: 2, 3: 15, 4: 96, 6: 10170}
    z = [np.sum(x**k - expected[k]) / np.sqrt(variance[k] * x.size) for k in expected]
    return statistics.corrected(2 * stats.norm.sf(np.abs(z)))


def tails_p(x: np.ndarray) -> float:
    """One p-value for the numbers beyond 2, 3, 4 and 4.5 deviations on either side, each binomial."""
    sides = [(bound, side * x > bound) for bound in (2.0, 3.0, 4.0, 4.5) for side in (1, -1)]
    return statistics.corrected(
        [stats.binomtest(int(beyond.sum()), x.size, stats.norm.sf(bound)).pvalue for bound, beyond in sides]
    )


def law_p(x: np.ndarray) -> float:
    """One p-value for the whole law."""
    return statistics.corrected([stats.kstest(x[:200_000], "norm").pvalue, moments_p(x), tails_p(x)])


def many(dtype: Any) -> np.ndarray:
    return flat_normals(steps=range(16), chains=range(512), shape=(16, 1, 8), dtype=dtype).ravel()


def test_normals_are_standard_normal_to_the_tails() -> None:
    x = many(np.float32)
    assert x.size == 2**20
    assert law_p(x) > BOUND
    assert np.abs(x).max() < 5.9  # sqrt(50 log 2): the finest uniform number is 2^-25


def test_normals_are_standard_normal_in_double_precision() -> None:
    with _home.enable_x64(True):
        x = many(np.float64)
    assert law_p(x) > BOUND
    assert len(np.unique(x)) == x.size  # 53 bits: 2^20 numbers do not meet


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda x: 1.005 * x, id="deviation"),
        pytest.param(lambda x: x + 0.005, id="mean"),
        pytest.param(lambda x: np.clip(x, -4, 4), id="tails"),
        pytest.param(lambda x: (x + 0.02 * (x**2 - 1)) / np.sqrt(1 + 2 * 0.02**2), id="skew"),
    ],
)
def test_a_law_that_is_slightly_wrong_is_noticed(wrong: Any) -> None:
    assert law_p(wrong(many(np.float32))) < 1e-4


def test_no_word_gives_0_or_1() -> None:
    ends = np.asarray(noise._unit(jnp.asarray([0, 2**32 - 1], jnp.uint32)))
    assert ends.dtype == np.float32 and ends[0] > 0 and ends[1] < 1


def test_uniforms_are_uniform() -> None:
    u = draw(chains=range(1000), shape=(5, 1, 1)).uniform.astype(np.float64).ravel()
    assert stats.kstest(u[:300_000], "uniform").pvalue > BOUND


def test_choices_are_uniform_and_the_two_of_a_step_are_independent() -> None:
    x, y = draw(steps=range(20_000), chains=[0], shape=(1, 1, 1)).choice.astype(np.float64).T
    counts = np.histogram2d(x, y, bins=16, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(counts.ravel()).pvalue > BOUND


def test_a_mixture_is_chosen_by_its_weights() -> None:
    bounds = np.cumsum([0.25, 0.125, 0.625])
    u = np.asarray(noise.move_choice(WORDS, jnp.arange(50_000, dtype=jnp.uint32)))
    counts = np.bincount(np.searchsorted(bounds, u, side="right"), minlength=3)
    assert stats.chisquare(counts, 50_000 * np.diff(bounds, prepend=0)).pvalue > BOUND


# ---- independence ----


def products_p(x: np.ndarray, y: np.ndarray) -> float:
    """One p-value for `x` and `y` being independent: of their products, their squares' products, and the crossed ones."""
    z = [
        np.sum(x * y) / np.sqrt(x.size),
        np.sum((x * x - 1) * (y * y - 1)) / np.sqrt(4 * x.size),
        np.sum((x * x - 1) * y) / np.sqrt(2 * x.size),
        np.sum(x * (y * y - 1)) / np.sqrt(2 * x.size),
    ]
    return statistics.corrected(2 * stats.norm.sf(np.abs(z)))


def independence_p(x: np.ndarray) -> float:
    """One p-value for `(steps, elements, chains)`: along each axis at lags 1 to 4, and along the diagonals at lag 1."""
    p = []
    for axis in range(3):
        y = np.moveaxis(x, axis, 0)
        p += [products_p(y[lag:], y[:-lag]) for lag in (1, 2, 3, 4)]
    p += [
        products_p(x[1:, 1:], x[:-1, :-1]),
        products_p(x[1:, :, 1:], x[:-1, :, :-1]),
        products_p(x[:, 1:, 1:], x[:, :-1, :-1]),
    ]
    return statistics.corrected(p)


@pytest.mark.parametrize("last", [True, False], ids=["chains last", "chains second"])
def test_steps_chains_and_elements_are_independent(last: bool) -> None:
    normal = draw(last=last).normal.astype(np.float64)
    x = normal if last else np.moveaxis(normal, 1, -1)
    assert independence_p(x.reshape(STEPS, -1, CHAINS)) > BOUND


def test_parts_seeds_and_distant_steps_are_independent() -> None:
    x = flat_normals()
    others = [
        flat_normals(part=1),
        flat_normals(words=noise.seed(20220924)),
        flat_normals(words=noise.seed(20220923 + 2**32)),
        flat_normals(steps=range(2**31, 2**31 + STEPS)),
        flat_normals(chains=range(2**31, 2**31 + CHAINS)),
    ]
    assert statistics.corrected([products_p(x, y) for y in others]) > BOUND


def test_normals_are_independent_of_what_decides_them() -> None:
    """The uniform number of a block, made normal, against the block's first normal number; and the step's choice."""
    made = draw(chains=range(400), shape=(8, 1, 1))
    x = made.normal[:, :, 0, 0].astype(np.float64)
    u = stats.norm.ppf(made.uniform.astype(np.float64))
    choice = stats.norm.ppf(made.choice.astype(np.float64))
    p = [products_p(x, u), products_p(x[:, 0, 0], choice[:, 0]), products_p(u[:, 0, 0], choice[:, 1])]
    assert statistics.corrected(p) > BOUND


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda x: np.concatenate([x[:1], (x[1:] + 0.05 * x[:-1]) / np.sqrt(1 + 0.05**2)]), id="steps"),
        pytest.param(lambda x: np.concatenate([x[:, :, :24], x[:, :, 23:47]], -1), id="chains that meet"),
        pytest.param(lambda x: np.concatenate([x[:, :3], np.abs(x[:, :3]) * np.sign(x[:, 3:6])], 1), id="shared radius"),
    ],
)
def test_numbers_that_depend_on_each_other_are_noticed(wrong: Any) -> None:
    assert independence_p(wrong(flat_normals())) < 1e-4


# ---- a place has its number ----


def test_noise_depends_neither_on_how_steps_are_grouped_nor_on_the_chains_beside() -> None:
    whole = draw()
    part = draw(steps=range(10, 20), chains=[7, 3])
    np.testing.assert_array_equal(part.normal, whole.normal[10:20, ..., [7, 3]])
    np.testing.assert_array_equal(part.uniform, whole.uniform[10:20, ..., [7, 3]])
    np.testing.assert_array_equal(part.choice, whole.choice[10:20])
    np.testing.assert_array_equal(part.key, whole.key[10:20])


def test_noise_is_the_same_on_either_axis() -> None:
    last, second = draw(), draw(last=False)
    np.testing.assert_array_equal(last.normal, np.moveaxis(second.normal, 1, -1))
    np.testing.assert_array_equal(last.uniform, np.moveaxis(second.uniform, 1, -1))


def test_the_noise_of_one_step_is_chain_0_of_many() -> None:
    one = noise.step_noise(WORDS, jnp.uint32(5), 1, SHAPE, np.dtype(np.float32))
    whole = draw(part=1)
    np.testing.assert_array_equal(one.normal, whole.normal[5, ..., 0])
    np.testing.assert_array_equal(one.uniform, whole.uniform[5, ..., 0])
    np.testing.assert_array_equal(one.choice, whole.choice[5])


# ---- seeds ----


def test_any_kind_of_key_is_a_seed() -> None:
    for key in (3, np.int32(3), np.uint64(3), jax.random.key(3), jax.random.PRNGKey(3), jax.random.key(3, impl="rbg")):
        words = noise.seed(key)
        assert words.shape == (2,) and words.dtype == jnp.uint32
    np.testing.assert_array_equal(noise.seed(3), noise.seed(np.int64(3)))


def test_different_seeds_have_different_words() -> None:
    keys = [0, 1, -1, 2**31, 2**32, 2**32 + 1, 2**63, 2**64 - 2]
    assert len({tuple(np.asarray(noise.seed(key)).tolist()) for key in keys}) == len(keys)
