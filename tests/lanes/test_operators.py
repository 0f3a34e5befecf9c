"""Every operator against torch, on random and on special values."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from alloy import lanes
from tests.lanes.harness import assert_close, compile, pairs, special

HUGE = 3e37  # beyond it torch's own float32 formulas overflow on the way


def run_all(cases, *inputs, rtol=2e-6, atol=1e-6):
    """Compile all cases as one function and compare each with torch in float64."""
    names = list(cases)

    def fn(*xs):
        return tuple(cases[n](*xs) for n in names)

    got = compile(fn, *inputs)(*inputs)
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    for name, actual in zip(names, got, strict=True):
        expected = cases[name](*wide)
        if not expected.is_floating_point():  # an integer or bool result is that of float32
            expected = cases[name](*inputs)
        assert_close(actual, expected, rtol, atol, name)


UNARY = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "square": torch.square,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "frac": torch.frac,
    "sign": torch.sign,
    "relu": torch.relu,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "exp2": torch.exp2,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "atan": torch.atan,
    "asin": torch.asin,
    "acos": torch.acos,
    "sinh": lambda x: torch.sinh(x.clamp(-80, 80)),
    "cosh": lambda x: torch.cosh(x.clamp(-80, 80)),
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "signbit": torch.signbit,
    "nan_to_num": lambda x: torch.nan_to_num(x, 7.0, 8.0, -9.0),
    "to bool": lambda x: x != 0,
    "logical_not": torch.logical_not,
    "clamp": lambda x: x.clamp(-2.5, 1e3),
    "clamp_min": lambda x: x.clamp_min(0.0),
    "clamp_max": lambda x: x.clamp_max(0.0),
    "add scalar": lambda x: x + 1.5,
    "rsub": lambda x: 1.5 - x,
    "add alpha": lambda x: torch.add(x, x.sign(), alpha=3),
    "mul scalar": lambda x: x * -0.5,
    "div scalar": lambda x: x / 3.0,
    "rdiv": lambda x: 3.0 / x,
    "pow 2": lambda x: x**2,
    "pow 3": lambda x: x**3,
    "pow -1": lambda x: x**-1,
    "pow 0.5": lambda x: x.abs() ** 0.5,
    "pow -0.5": lambda x: x.abs() ** -0.5,
    "pow 1.5": lambda x: x.abs() ** 1.5,
    "pow 0": lambda x: x**0,
    "gt": lambda x: x > 0.25,
    "ge": lambda x: x >= 0.25,
    "lt": lambda x: x < 0.25,
    "le": lambda x: x <= 0.25,
    "eq": lambda x: x == 0,
    "ne": lambda x: x != 0,
    "where scalars": lambda x: torch.where(x > 0, 1.0, -2.0),
    "deg2rad": torch.deg2rad,
    "copysign": lambda x: torch.copysign(x, torch.tensor(-2.0)),
}


@pytest.mark.parametrize("worlds", [1, 3, 17, 64])
def test_unary(worlds):
    x = special(worlds, 9, seed=worlds)

    # the float32 result where float64 would not overflow or underflow
    def fn(x):
        return tuple(f(x) for f in UNARY.values())

    got = compile(fn, x)(x)
    for (name, f), actual in zip(UNARY.items(), got, strict=True):
        single, double = f(x), f(x.double())
        if single.is_floating_point():
            near = double.abs().clamp(1e-37, HUGE) == double.abs()
            expected = torch.where(near, double.float(), single)
        else:
            expected = single
        tiny = 1e-37  # denormals may be flushed by either side's own formula
        assert_close(actual, expected, 4e-6 if "pow" in name else 3e-6, 2e-7 + tiny, name)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3, 1e5])
def test_angles(scale):
    x = (torch.rand(4001, 1) * 2 - 1) * scale
    x[:4, 0] = torch.tensor([0.0, -0.0, scale, -scale])
    x[4:64, 0] = torch.arange(60) * (math.pi / 4) * max(1.0, round(scale / 100))
    sin, cos, tan = compile(lambda x: (x.sin(), x.cos(), x.tan()), x)(x)
    assert_close(sin, x.double().sin(), 0, 1.3e-7, "sin")
    assert_close(cos, x.double().cos(), 0, 1.3e-7, "cos")
    away = x.double().cos().abs() > 1e-3
    assert_close(tan[away], x.double().tan()[away], 5e-6, 1e-6, "tan")
    zero = x == 0
    assert torch.equal(torch.signbit(sin[zero]), torch.signbit(x[zero]))


def test_inverse_angles():
    x = torch.cat([torch.linspace(-1, 1, 2001), 1 - torch.logspace(-7, -1, 50)])[:, None]
    asin, acos = compile(lambda x: (x.asin(), x.acos()), x)(x)
    assert_close(asin, x.double().asin(), 1e-6, 1.5e-7, "asin")
    assert_close(acos, x.double().acos(), 1e-6, 3e-7, "acos")


def test_angles_beyond_reduction():
    x = torch.tensor([[math.inf], [-math.inf], [math.nan], [1e30], [-3e9]])
    sin, cos = compile(lambda x: (x.sin(), x.cos()), x)(x)
    for y in (sin, cos):
        assert torch.isnan(y[:3]).all()
        assert (y[3:].abs() <= 1).all()


BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "atan2": torch.atan2,
    "gt": torch.gt,
    "le": torch.le,
    "eq": torch.eq,
    "ne": torch.ne,
    "where": lambda a, b: torch.where(a > b, a, b),
    "copysign": torch.copysign,
    "clamp tensor": lambda a, b: torch.clamp(a, min=b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.25),
    "addcmul": lambda a, b: torch.addcmul(a, b, b, value=1),
}


def test_binary():
    a, b = pairs()
    names = list(BINARY)
    got = compile(lambda a, b: tuple(BINARY[n](a, b) for n in names), a, b)(a, b)
    for name, actual in zip(names, got, strict=True):
        assert_close(actual, BINARY[name](a, b), 3e-6, 1e-37 if name != "atan2" else 3e-7, name)


def test_signs_of_zeros():
    a, b = pairs()
    names = ("mul", "div", "atan2", "copysign")
    got = compile(lambda a, b: tuple(BINARY[n](a, b) for n in names), a, b)(a, b)
    for name, actual in zip(names, got, strict=True):
        expected = BINARY[name](a, b)
        real = ~torch.isnan(expected) & ~(expected.abs() < 1e-37).logical_and(expected != 0)
        assert torch.equal(torch.signbit(actual[real]), torch.signbit(expected[real])), name


def test_remainder_and_power():
    g = torch.Generator().manual_seed(1)
    a = torch.randn(500, 1, generator=g) * 20
    b = torch.randn(500, 1, generator=g).sign() * (torch.rand(500, 1, generator=g) * 4 + 0.1)
    run_all(
        {
            "remainder": lambda a, b: torch.remainder(a, b) + 0 * b,
            "remainder scalar": lambda a, b: torch.remainder(a, 2.5),
            "fmod": torch.fmod,
            "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
            "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        },
        a.mul(8).round() / 8, b.mul(8).round().add(0.25) / 8, atol=1e-5,
    )  # fmt: skip
    run_all(
        {
            "power": lambda a, b: a.abs() ** b,
            "scalar base": lambda a, b: 2.0**b,
            "hypot": torch.hypot,
            "cube of negative": lambda a, b: a**3.0,
            "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.5),
        },
        a, b, rtol=3e-5,
    )  # fmt: skip


def test_bools_and_masks():
    g = torch.Generator().manual_seed(2)
    a, b = (torch.rand(33, 5, generator=g) > 0.5 for _ in range(2))
    x = torch.randn(33, 5, generator=g)
    run_all(
        {
            "and": lambda a, b, x: a & b,
            "or": lambda a, b, x: a | b,
            "xor": lambda a, b, x: a ^ b,
            "not": lambda a, b, x: ~a,
            "logical_xor": lambda a, b, x: torch.logical_xor(a, b),
            "any": lambda a, b, x: a.any(-1),
            "all": lambda a, b, x: b.all(-1, keepdim=True),
            "count": lambda a, b, x: a.sum(-1),
            "cumsum": lambda a, b, x: a.cumsum(-1),
            "to float": lambda a, b, x: a.to(torch.float32) * x,
            "times bool": lambda a, b, x: x * b,
            "masked_fill": lambda a, b, x: x.masked_fill(a, -3.0),
            "nested": lambda a, b, x: torch.where(
                a, torch.where(b, x, 2 * x), torch.where(a, 5.0, -x)
            ),
            "eq": lambda a, b, x: a == b,
            "to int": lambda a, b, x: a.to(torch.int64) + b.to(torch.int64) * 2,
        },
        a, b, x,
    )  # fmt: skip


def test_integers():
    g = torch.Generator().manual_seed(3)
    for dtype in (torch.int32, torch.int64):
        info = torch.iinfo(dtype)
        a = torch.randint(-50, 50, (40, 3), generator=g).to(dtype)
        b = torch.randint(1, 20, (40, 3), generator=g).to(dtype) * torch.tensor(
            [1, -1, 1], dtype=dtype
        )
        a[0], a[1] = info.max, info.min
        run_all(
            {
                "add": lambda a, b: a + b,
                "sub": lambda a, b: 3 - a - b,
                "mul": lambda a, b: a * b * 7,
                "floor_divide": lambda a, b: a // b,
                "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
                "remainder": lambda a, b: a % b,
                "remainder scalar": lambda a, b: a % 8,
                "div scalar": lambda a, b: a // 4,
                "shift": lambda a, b: (a << 3) ^ (a >> 2),
                "bits": lambda a, b: (a & 0xFF) | (b ^ 5),
                "not": lambda a, b: ~a,
                "compare": lambda a, b: a < b,
                "min": lambda a, b: torch.minimum(a, b) + torch.maximum(a, b).clamp(-3, 9),
                "abs": lambda a, b: b.abs() + a.sign(),
                "sum": lambda a, b: b.sum(-1),
                "to float": lambda a, b: b.to(torch.float32) * 0.5,
                "divide": lambda a, b: b / 4,
                "where": lambda a, b: torch.where(a > 0, a, b),
            },
            a, b,
        )  # fmt: skip


def test_float_to_integer():
    x = torch.tensor([[0.0], [-0.0], [1.9], [-1.9], [1e6], [-123456.7]])
    run_all({"int64": lambda x: x.to(torch.int64), "int32": lambda x: x.int()}, x)


def test_philox_like_counters():
    def rounds(counter):
        lo, hi = counter[:, 0], counter[:, 1]
        for k in range(4):
            product = lo * 0xD2511F53
            lo, hi = (
                (product >> 32) & 0xFFFFFFFF ^ hi ^ (k * 0x9E3779B9 & 0xFFFFFFFF),
                product & 0xFFFFFFFF,
            )
        return torch.stack([lo, hi], 1), (lo >> 8).to(torch.float32) * 2.0**-24

    c = torch.randint(0, 2**32, (50, 2), generator=torch.Generator().manual_seed(4))
    ints, floats = compile(rounds, c)(c)
    expected = rounds(c)
    assert torch.equal(ints, expected[0])
    assert torch.equal(floats, expected[1])


REDUCTIONS = {
    "sum": lambda x: x.sum((1, 2)),
    "sum keep": lambda x: x.sum(-1, keepdim=True),
    "mean": lambda x: x.mean(-1),
    "prod": lambda x: x.prod(1),
    "amax": lambda x: x.amax((1, 2)),
    "amin": lambda x: x.amin(-1, keepdim=True),
    "max": lambda x: x.max(-1).values,
    "min index": lambda x: x.min(1).indices,
    "argmax": lambda x: x.argmax(-1),
    "norm": lambda x: x.norm(dim=-1),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1, dim=-1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, math.inf, dim=-1),
    "cumsum": lambda x: x.cumsum(-1),
    "cumprod": lambda x: x.cumprod(1),
    "std by hand": lambda x: ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1).sqrt(),
    "sort": lambda x: x.sort(-1).values,
    "sort indices": lambda x: x.sort(-1, descending=True).indices,
    "topk": lambda x: x.topk(2, -1).values,
    "topk smallest": lambda x: x.topk(2, 1, largest=False).indices,
}


def test_reductions():
    run_all(REDUCTIONS, torch.randn(19, 4, 5, generator=torch.Generator().manual_seed(5)))


def test_reductions_keep_nan():
    x = torch.randn(5, 4)
    x[1, 2] = math.nan
    run_all(
        {
            "sum": lambda x: x.sum(-1),
            "amax": lambda x: x.amax(-1),
            "max": lambda x: x.max(-1).values,
            "argmin": lambda x: x.argmin(-1),
            "sort": lambda x: x.sort(-1).values,
        },
        x,
    )


INDEX = torch.tensor([3, 0, 0, 2])
MOVES = {
    "reshape": lambda x: x.reshape(x.shape[0], -1),
    "transpose": lambda x: x.transpose(1, 2),
    "permute": lambda x: x.permute(0, 2, 1).contiguous(),
    "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, -1),
    "repeat": lambda x: x.repeat(1, 2, 1),
    "expand": lambda x: x.unsqueeze(1).expand(-1, 3, -1, -1),
    "unfold": lambda x: x.unfold(-1, 2, 1),
    "stack": lambda x: torch.stack([x, 2 * x], -1),
    "cat": lambda x: torch.cat([x, x[:, :1]], 1),
    "split": lambda x: x.split([1, 3], 1)[1],
    "chunk": lambda x: x.chunk(2, -1)[0],
    "unbind": lambda x: x.unbind(1)[2],
    "slice step": lambda x: x[:, ::2, 1:],
    "negative": lambda x: x[:, -1],
    "index_select": lambda x: x.index_select(1, INDEX),
    "index": lambda x: x[:, INDEX],
    "index pair": lambda x: x[:, [0, 1], [2, 3]],
    "gather": lambda x: x.gather(1, INDEX[None, :, None].expand(x.shape[0], 4, 5)),
    "take_along": lambda x: torch.take_along_dim(x, INDEX[None, :, None], 1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "diag_embed": lambda x: torch.diag_embed(x[:, 0]),
    "diag_embed offset": lambda x: torch.diag_embed(x[:, 0], 1),
    "tril": lambda x: x.tril(-1),
    "triu": lambda x: x.triu(1),
    "pad": lambda x: pad(x, (1, 2)),
    "movedim": lambda x: x.movedim(1, 2),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "new_zeros": lambda x: x.new_zeros(x.shape[0], 2) + x[:, :2, 0],
    "full_like": lambda x: torch.full_like(x, 2.0) * x,
    "arange": lambda x: x * torch.arange(5),
    "eye": lambda x: x @ torch.eye(5, dtype=x.dtype),
    "meshgrid": lambda x: x + torch.outer(torch.arange(4.0), torch.arange(5.0)),
}


def test_moving_elements():
    run_all(MOVES, torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(6)))


def put(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y[:, 1] = x[:, 0]
    y[:, 2:, ::2] = 3.0
    y[:, 0, 1] += 5.0
    return y


def put_indexed(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, INDEX[:2]] = x[:, :2] * 2
    return y.index_add(1, torch.tensor([1, 1]), x[:, :2])


WRITES = {
    "assign": put,
    "indexed": put_indexed,
    "mask": lambda x: torch.where(x > 0, x, x).masked_fill(x < 0, 0.0),
    "masked assign": lambda x: torch.index_put(x, (x > 0.5,), torch.tensor(9.0)),
    "scatter": lambda x: x.scatter(1, INDEX[None, :1, None].expand(x.shape[0], 1, 5), 2 * x[:, :1]),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(
        1, INDEX[None, :, None].expand(x.shape[0], 4, 5), x
    ),
    "diagonal": lambda x: x.diagonal_scatter(torch.ones(x.shape[0], 4), 0, 1, 2),
    "index_copy": lambda x: x.index_copy(1, torch.tensor([2, 0]), x[:, :2]),
    "index_fill": lambda x: x.index_fill(1, torch.tensor([2, 0]), 4.0),
    "index_put accumulate": lambda x: x.index_put(
        (torch.arange(x.shape[0])[:, None], torch.tensor([[1, 1]])), x[:, :2], accumulate=True
    ),
}


def test_writes():
    run_all(WRITES, torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(7)))


def test_computed_indices():
    g = torch.Generator().manual_seed(8)
    x = torch.randn(21, 4, 3, generator=g)
    i = torch.randint(0, 4, (21, 2), generator=g)
    run_all(
        {
            "gather": lambda x, i: x[..., 0].gather(1, i),
            "take_along": lambda x, i: torch.take_along_dim(x, i[..., None], 1),
            "scatter": lambda x, i: torch.zeros_like(x[..., 0]).scatter(1, i, 1.0),
            "scatter_add": lambda x, i: x[..., 0].scatter_add(1, i, x[:, :2, 1]),
            "worlds": lambda x, i: x[torch.arange(x.shape[0]), i[:, 0]],
            "one_hot": lambda x, i: (i[..., None] == torch.arange(4)).to(torch.int64),
        },
        x, i,
    )  # fmt: skip


def test_computed_indices_over_more_elements_than_numpy_takes_arrays():
    g = torch.Generator().manual_seed(9)
    x, i = torch.randn(11, 70, generator=g), torch.randint(0, 70, (11,), generator=g)
    table = torch.randn(70, generator=g)

    def fn(x, i):
        from_end = table[-3:][i % 6 - 3]
        return x[torch.arange(x.shape[0]), i], table[i], table.index_select(0, i), from_end

    for actual, expected in zip(compile(fn, x, i)(x, i), fn(x, i), strict=True):
        assert_close(actual, expected)


def test_computed_indices_over_too_much_say_so():
    i, table = torch.zeros(5, 50, dtype=torch.int64), torch.randn(100)
    for fn in (lambda i: table[i], lambda i: table.expand(5, 100).gather(1, i)):
        with pytest.raises(lanes.UnsupportedOperator, match=r"a gather .* over 5000 pairs"):
            compile(fn, i)


def spd(x: Tensor) -> Tensor:
    return x @ x.transpose(-1, -2) + torch.eye(x.shape[-1], dtype=x.dtype)


LINEAR = {
    "matmul": lambda a, b: a @ a,
    "matvec": lambda a, b: (a @ b.unsqueeze(-1)).squeeze(-1),
    "constant matrix": lambda a, b: b @ torch.arange(30, dtype=b.dtype).reshape(6, 5),
    "einsum": lambda a, b: torch.einsum("wij,wj->wi", a, b),
    "outer": lambda a, b: torch.einsum("wi,wj->wij", b, b),
    "baddbmm": lambda a, b: torch.baddbmm(a, a, a, beta=0.5, alpha=2.0),
    "cross": lambda a, b: torch.linalg.cross(b[:, :3], b[:, 3:]),
    "cholesky": lambda a, b: torch.linalg.cholesky(spd(a)),
    "cholesky upper": lambda a, b: torch.linalg.cholesky(spd(a), upper=True),
    "cholesky_solve": lambda a, b: torch.cholesky_solve(
        b.unsqueeze(-1), torch.linalg.cholesky(spd(a))
    ),
    "solve_triangular": lambda a, b: torch.linalg.solve_triangular(
        torch.linalg.cholesky(spd(a)), a, upper=False
    ),
    "solve_triangular right": lambda a, b: torch.linalg.solve_triangular(
        torch.linalg.cholesky(spd(a)), a, upper=False, left=False
    ),
    "solve unit": lambda a, b: torch.linalg.solve_triangular(
        a.triu(1), b.unsqueeze(-1), upper=True, unitriangular=True
    ),
    "inverse 3x3": lambda a, b: torch.linalg.inv(spd(a[:, :3, :3])),
    "determinant": lambda a, b: torch.linalg.det(a[:, :3, :3]),
}


def test_linear_algebra():
    g = torch.Generator().manual_seed(9)
    a = torch.randn(19, 6, 6, generator=g) * 0.5
    run_all(LINEAR, a, torch.randn(19, 6, generator=g), rtol=2e-5, atol=2e-5)


def test_sparse_factor_skips_structural_zeros():
    keep = torch.eye(6, dtype=torch.bool)
    keep[5] = keep[:, 5] = True  # an arrow: no fill in this order

    def fn(a):
        m = torch.where(keep, a, 0.0)
        return torch.linalg.cholesky(m)

    a = spd(torch.randn(5, 6, 6, generator=torch.Generator().manual_seed(10)))
    c = compile(fn, a)
    assert_close(c(a), torch.linalg.cholesky(torch.where(keep, a, 0.0).double()), 1e-5, 1e-5)
    assert c.report()["statements"] < 40


def test_dtypes_in_and_out():
    x = torch.randn(5, 2)
    inputs = (x, x.double(), (x > 0), (x * 9).int(), (x * 9).long())
    out = compile(lambda *xs: tuple(xs[::-1]), *inputs)(*inputs)
    for a, b in zip(out, inputs[::-1], strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b.float().double() if b.dtype == torch.float64 else b)


def test_constant_results():
    x = torch.randn(5, 2)
    out = compile(
        lambda x: (torch.ones(x.shape[0], 3), torch.full((x.shape[0],), 7), x * 0, x < math.inf), x
    )(x)
    assert torch.equal(out[0], torch.ones(5, 3))
    assert torch.equal(out[1], torch.full((5,), 7))
    assert torch.equal(out[2], torch.zeros(5, 2))
    assert out[3].all()
