import math

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from alloy.random import normal, philox, uniform, world_seeds

# Philox 4x32-10 lines of Random123's kat_vectors: counter, key, result
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


def hex_words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(counter, key, result):
    words = philox(torch.tensor(hex_words(key)), torch.tensor(hex_words(counter)))
    assert words.tolist() == hex_words(result)


def test_batch_of_keys_and_counters_broadcasts():
    keys = torch.tensor([hex_words(key) for _, key, _ in KNOWN])
    counters = torch.tensor([hex_words(counter) for counter, _, _ in KNOWN])
    every = philox(keys.unsqueeze(1), counters)
    assert every.shape == (3, 3, 4)
    for i in range(3):
        assert every[i, i].tolist() == hex_words(KNOWN[i][2])
        for j in range(3):
            assert torch.equal(every[i, j], philox(keys[i], counters[j]))


def test_uniform_is_the_documented_counter_and_key():
    seed, episode = ints(2**40 + 5, -3), ints(7, 2**33 + 1)
    u = uniform(seed, episode, 11, 6)
    for w, (s, e) in enumerate(zip([2**40 + 5, 2**64 - 3], [7, 2**33 + 1], strict=True)):
        key = ints(s & 0xFFFFFFFF, s >> 32)
        words = torch.cat(
            [philox(key, ints(block, 11, e & 0xFFFFFFFF, e >> 32)) for block in range(2)]
        )
        assert torch.equal(u[w], (words[:6] >> 8).float() / 2**24)


@pytest.mark.parametrize("draw", [uniform, normal])
def test_number_depends_on_world_seed_episode_draw_and_index_only(draw):
    seeds, episodes = world_seeds(3, 64), torch.arange(64) // 2
    many = draw(seeds, episodes, 5, 9)
    assert many.shape == (64, 9)
    assert many.dtype == torch.float32
    for rows in ([0], [5, 40, 63]):
        assert torch.equal(draw(seeds[rows], episodes[rows], 5, 9), many[rows])
    assert torch.equal(draw(seeds, episodes, 5, 4), many[:, :4])
    assert torch.equal(draw(seeds, episodes, 5, 9, torch.float64), many.double())
    others = [(seeds + 64, episodes, 5), (seeds, episodes + 64, 5), (seeds, episodes, 6)]
    for other in others:
        assert not torch.isin(draw(*other, 9), many).all()
    assert len(many.unique()) > 570  # 576 numbers, hardly any twice


@pytest.mark.parametrize("draw", [uniform, normal])
def test_odd_and_empty_sizes(draw):
    for n in (0, 1, 2, 3, 5):
        assert draw(ints(1, 2, 3), ints(0, 0, 0), 0, n).shape == (3, n)


def test_uniform_distribution():
    u = uniform(world_seeds(0, 512), torch.zeros(512, dtype=torch.int64), 0, 512).double()
    assert u.min() >= 0
    assert u.max() < 1
    # 5 standard errors of mean and variance, and a chi-square test over 64 cells
    count = u.numel()
    assert abs(u.mean() - 0.5) < 5 * math.sqrt(1 / 12 / count)
    assert abs(u.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / count)
    cells = torch.histc(u, 64, 0, 1)
    chi2 = ((cells - count / 64) ** 2 / (count / 64)).sum()
    assert 63 - 5 * math.sqrt(126) < chi2 < 63 + 5 * math.sqrt(126)
    # neighbouring worlds, neighbouring numbers
    for a, b in ((u[1:], u[:-1]), (u[:, 1:], u[:, :-1])):
        assert abs(((a - 0.5) * (b - 0.5)).mean() * 12) < 5 / math.sqrt(count)


def test_normal_distribution():
    z = normal(world_seeds(0, 512), torch.zeros(512, dtype=torch.int64), 0, 512).double()
    count = z.numel()
    assert torch.isfinite(z).all()
    assert abs(z.mean()) < 5 / math.sqrt(count)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / count)
    assert abs((z**4).mean() - 3) < 5 * math.sqrt(96 / count)
    for x in (-2.0, -1.0, 0.0, 1.0, 2.0):
        below = 0.5 * (1 + math.erf(x / math.sqrt(2)))
        assert abs((z < x).double().mean() - below) < 5 * math.sqrt(below * (1 - below) / count)


def test_one_set_of_numbers_eager_compiled_and_traced():
    def both(seed, episode):
        return uniform(seed, episode, 2, 7), normal(seed, episode, 3, 5)

    seed, episode = world_seeds(2**35, 6), torch.arange(6)
    expected = both(seed, episode)
    traced = make_fx(both)(seed[:1], episode[:1])
    for actual, full in zip(traced(seed[2:3], episode[2:3]), expected, strict=True):
        assert torch.equal(actual, full[2:3])
    compiled = torch.compile(both, fullgraph=True)(seed, episode)
    assert torch.equal(compiled[0], expected[0])
    torch.testing.assert_close(compiled[1], expected[1], rtol=2e-7, atol=1e-7)  # libm's last bit


def test_world_seeds():
    assert world_seeds(7, 3).tolist() == [7, 8, 9]
    assert world_seeds([5, 5, -2], 3).tolist() == [5, 5, -2]
    assert world_seeds(ints(1, 2), 2).tolist() == [1, 2]
    with pytest.raises(ValueError, match="2 entries for 3 worlds"):
        world_seeds([1, 2], 3)
    with pytest.raises(ValueError, match=r"not 1\.5"):
        world_seeds(1.5, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="64 bits"):
        world_seeds(2**63, 1)
