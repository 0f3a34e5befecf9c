"""Elementary functions as scalar programs: range reduction and polynomials, a few ulp everywhere.

LLVM would call libm once per lane. Coefficients are the single-precision minimax polynomials of
the Cephes library (Moshier). Infinities, NaN and signed zeros come out as in torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from alloy.lanes.scalar import Graph, Node, Value

INF = math.inf
# pi/2 = A + B + C, the first two float32; q * A is exact in a fused multiply-add
HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058e-15)
SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)


def polynomial(g: Graph, coefficients: Sequence[float], x: Value) -> Value:
    """Horner's rule, highest power first."""
    out: Value = coefficients[0]
    for c in coefficients[1:]:
        out = g.fma(out, x, c)
    return out


def folded(fn: Callable[..., float]) -> Callable[[Callable], Callable]:
    """Evaluate on constants with `fn`; a domain error there is NaN, an overflow infinite."""

    def wrap(program: Callable) -> Callable:
        def run(g: Graph, *xs: Value) -> Value:
            if any(isinstance(x, Node) for x in xs):
                return program(g, *(g.cast(x, "f") for x in xs))
            try:
                return fn(*(float(x) for x in xs))
            except OverflowError:
                return INF
            except ValueError:
                return math.nan

        run.__name__, run.__doc__ = program.__name__, program.__doc__
        return run

    return wrap


def _flip(g: Graph, x: Value, sign: Value) -> Value:
    """X with its sign bit flipped where bit 31 of the int `sign` is set."""
    return g.unbits(g.xor(g.bits(x), sign))


def _sign(g: Graph, x: Value) -> Value:
    return g.and_(g.bits(x), -(1 << 31))


def _quadrant(g: Graph, x: Value) -> tuple[Value, Value]:
    """Remainder of x by pi/2 in [-pi/4, pi/4] and the quadrant as int32."""
    q = g.unary("rint", g.mul(x, 2.0 / math.pi))
    r = x
    for part in HALF_PI:
        r = g.fma(q, -part, r)
    # beyond this the reduction has no digits left: 0 for finite x, NaN otherwise
    r = g.sel(g.lt(g.unary("abs", q), 4194304.0), r, g.mul(x, g.sub(x, x)))
    r = g.sel(g.eq(q, 0.0), x, r)  # keeps the sign of zero
    return r, g.cast(q, "i")


def _sin_poly(g: Graph, r: Value, z: Value) -> Value:
    y = g.fma(g.mul(r, z), polynomial(g, SIN, z), r)
    return g.unbits(g.or_(g.bits(y), _sign(g, r)))  # only -0 does not have its sign yet


def _cos_poly(g: Graph, z: Value) -> Value:
    return g.fma(g.mul(z, z), polynomial(g, COS, z), g.fma(z, -0.5, 1.0))


def _sincos(g: Graph, x: Value, turn: int) -> Value:
    r, n = _quadrant(g, x)
    z = g.mul(r, r)
    n = g.add(n, turn)
    value = g.sel(g.eq(g.and_(n, 1), 0), _sin_poly(g, r, z), _cos_poly(g, z))
    return _flip(g, value, g.shift("shl", g.and_(n, 2), 30))


def sin(g: Graph, x: Value) -> Value:
    """Sine; absolute error below 1e-7 for |x| up to 1e5."""
    if not isinstance(x, Node):
        return math.sin(x) if math.isfinite(x) else math.nan
    if x.op == "neg":
        return g.neg(sin(g, x.args[0]))
    m = g.masked(x)
    return g.mask(m[0], sin(g, m[1])) if m else _sincos(g, g.cast(x, "f"), 0)


def cos(g: Graph, x: Value) -> Value:
    """Cosine; absolute error below 1e-7 for |x| up to 1e5."""
    if not isinstance(x, Node):
        return math.cos(x) if math.isfinite(x) else math.nan
    if x.op == "neg":
        return cos(g, x.args[0])
    return _sincos(g, g.cast(x, "f"), 1)


@folded(math.tan)
def tan(g: Graph, x: Value) -> Value:
    """Tangent."""
    return g.div(sin(g, x), cos(g, x))


def _scale2(g: Graph, x: Value, n: Value) -> Value:
    """X * 2**n for int32 n in [-252, 252], in two exact steps so that denormals come out right."""
    half = g.shift("shr", n, 1)
    for part in (half, g.sub(n, half)):
        x = g.mul(x, g.unbits(g.shift("shl", g.add(part, 127), 23)))
    return x


def _exp_parts(g: Graph, x: Value) -> tuple[Value, Value]:
    """(exp(r) - 1, n) with x = n ln 2 + r, for x in a range where n fits."""
    n = g.unary("rint", g.mul(x, 1.0 / math.log(2.0)))
    r = g.fma(n, 2.12194440e-4, g.fma(n, -0.693359375, x))
    return g.fma(g.mul(r, r), polynomial(g, EXP, r), r), g.cast(n, "i")


@folded(math.exp)
def exp(g: Graph, x: Value) -> Value:
    """Exponential."""
    m, n = _exp_parts(g, g.minimum(g.maximum(x, -105.0), 89.0))
    return _scale2(g, g.add(m, 1.0), n)


@folded(lambda x: 2.0**x)
def exp2(g: Graph, x: Value) -> Value:
    """2 ** x."""
    x = g.minimum(g.maximum(x, -152.0), 129.0)
    n = g.unary("rint", x)
    r = g.mul(g.sub(x, n), math.log(2.0))
    m = g.fma(g.mul(r, r), polynomial(g, EXP, r), r)
    return _scale2(g, g.add(m, 1.0), g.cast(n, "i"))


@folded(math.expm1)
def expm1(g: Graph, x: Value) -> Value:
    """exp(x) - 1 without cancellation near 0."""
    x = g.minimum(g.maximum(x, -30.0), 89.0)
    m, n = _exp_parts(g, x)
    big = g.sub(_scale2(g, g.add(m, 1.0), n), 1.0)
    return g.sel(g.eq(n, 0), m, big)


def _log_parts(g: Graph, x: Value) -> tuple[Value, Value]:
    """(m, e) with x = (1 + m) 2**e, 1 + m in [sqrt(1/2), sqrt(2)); for positive finite x."""
    tiny = g.lt(x, 1.1754943508222875e-38)
    b = g.bits(g.sel(tiny, g.mul(x, 8388608.0), x))
    # shift so that the exponent switches at sqrt(1/2)
    offset = g.sub(b, 0x3F3504F3)
    e = g.shift("shr", offset, 23)
    m = g.unbits(g.add(g.and_(offset, 0x7FFFFF), 0x3F3504F3))
    return g.sub(m, 1.0), g.sub(g.cast(e, "f"), g.sel(tiny, 23.0, 0.0))


def _log_poly(g: Graph, m: Value, e: Value) -> Value:
    z = g.mul(m, m)
    y = g.mul(g.mul(m, z), polynomial(g, LOG, m))
    y = g.fma(z, -0.5, g.fma(e, -2.12194440e-4, y))
    return g.fma(e, 0.693359375, g.add(m, y))


def _log_specials(g: Graph, x: Value, y: Value) -> Value:
    y = g.sel(g.lt(x, INF), y, x)  # inf and NaN stay
    y = g.sel(g.eq(x, 0.0), -INF, y)
    return g.sel(g.lt(x, 0.0), math.nan, y)


@folded(lambda x: math.log(x) if x != 0 else -INF)
def log(g: Graph, x: Value) -> Value:
    """Natural logarithm."""
    return _log_specials(g, x, _log_poly(g, *_log_parts(g, x)))


@folded(lambda x: math.log1p(x) if x != -1 else -INF)
def log1p(g: Graph, x: Value) -> Value:
    """log(1 + x), exact to first order near 0 by log(u) x / (u - 1)."""
    u = g.add(x, 1.0)
    d = g.sub(u, 1.0)
    direct = g.eq(d, 0.0)
    y = g.mul(log(g, u), g.div(x, g.sel(direct, 1.0, d)))
    y = g.sel(g.lt(x, INF), y, x)
    return g.sel(direct, x, y)


def _atan_positive(g: Graph, num: Value, den: Value) -> Value:
    """atan(num / den) for num, den >= 0, by the nearest of 0, pi/4 and pi/2."""
    high = g.lt(g.mul(den, 2.414213562373095), num)  # tan(3 pi / 8)
    middle = g.lt(g.mul(den, 0.4142135623730950), num)
    n = g.sel(high, g.neg(den), g.sel(middle, g.sub(num, den), num))
    d = g.sel(high, num, g.sel(middle, g.add(num, den), den))
    t = g.div(n, d)
    z = g.mul(t, t)
    base = g.sel(high, math.pi / 2, g.sel(middle, math.pi / 4, 0.0))
    return g.add(base, g.fma(g.mul(t, z), polynomial(g, ATAN, z), t))


@folded(math.atan)
def atan(g: Graph, x: Value) -> Value:
    """Arc tangent."""
    y = _atan_positive(g, g.unary("abs", x), 1.0)
    y = g.sel(g.eq(g.unary("abs", x), INF), math.pi / 2, y)
    return _flip(g, y, _sign(g, x))


@folded(math.atan2)
def atan2(g: Graph, y: Value, x: Value) -> Value:
    """Angle of the vector (x, y), with IEEE signs of zeros and infinities."""
    ax, ay = g.unary("abs", x), g.unary("abs", y)
    both = g.and_(g.eq(ax, INF), g.eq(ay, INF))
    none = g.and_(g.eq(ax, 0.0), g.eq(ay, 0.0))
    # scale huge and tiny pairs so that the sums and products above neither overflow nor vanish
    big = g.lt(1e37, g.maximum(ax, ay))
    small = g.lt(g.maximum(ax, ay), 1e-30)
    k = g.sel(big, 1e-6, g.sel(small, 1e16, 1.0))
    one = g.or_(both, none)
    num = g.sel(one, g.sel(both, 1.0, 0.0), g.mul(ay, k))
    den = g.sel(one, 1.0, g.mul(ax, k))
    y_inf = g.and_(g.eq(ay, INF), g.not_(both))
    x_inf = g.and_(g.eq(ax, INF), g.not_(both))
    a = _atan_positive(g, num, den)
    a = g.sel(y_inf, math.pi / 2, g.sel(x_inf, 0.0, a))
    nan = g.or_(g.ne(x, x), g.ne(y, y))
    a = g.sel(g.lt(g.bits(x) if isinstance(x, Node) else _negative(x), 0), g.sub(math.pi, a), a)
    a = g.sel(nan, math.nan, a)
    return _flip(g, a, _sign(g, y)) if isinstance(y, Node) else (g.neg(a) if _negative(y) else a)


def _negative(x: float) -> int:
    return -1 if math.copysign(1.0, x) < 0 else 0


@folded(math.asin)
def asin(g: Graph, x: Value) -> Value:
    """Arc sine; NaN outside [-1, 1]."""
    a = g.unary("abs", x)
    outer = g.lt(0.5, a)
    z = g.sel(outer, g.fma(a, -0.5, 0.5), g.mul(a, a))
    s = g.sel(outer, g.unary("sqrt", z), a)
    p = g.fma(g.mul(s, z), polynomial(g, ASIN, z), s)
    return _flip(g, g.sel(outer, g.fma(p, -2.0, math.pi / 2), p), _sign(g, x))


@folded(math.acos)
def acos(g: Graph, x: Value) -> Value:
    """Arc cosine; NaN outside [-1, 1]."""
    a = g.unary("abs", x)
    outer = g.lt(0.5, a)
    z = g.sel(outer, g.fma(a, -0.5, 0.5), g.mul(x, x))
    s = g.sel(outer, g.unary("sqrt", z), x)
    p = g.fma(g.mul(s, z), polynomial(g, ASIN, z), s)
    twice = g.mul(p, 2.0)
    far = g.sel(g.lt(x, 0.0), g.sub(math.pi, twice), twice)
    return g.sel(outer, far, g.sub(math.pi / 2, p))


@folded(math.tanh)
def tanh(g: Graph, x: Value) -> Value:
    """Hyperbolic tangent."""
    a = g.unary("abs", x)
    z = g.mul(x, x)
    near = g.fma(g.mul(x, z), polynomial(g, TANH, z), x)
    e = exp(g, g.mul(g.minimum(a, 10.0), 2.0))
    far = _flip(g, g.sub(1.0, g.div(2.0, g.add(e, 1.0))), _sign(g, x))
    return g.sel(g.lt(a, 0.625), near, far)


def sigmoid(g: Graph, x: Value) -> Value:
    """1 / (1 + exp(-x))."""
    return g.div(1.0, g.add(exp(g, g.neg(g.cast(x, "f"))), 1.0))


@folded(math.sinh)
def sinh(g: Graph, x: Value) -> Value:
    """Hyperbolic sine."""
    a = g.unary("abs", x)
    e = expm1(g, g.minimum(a, 88.0))
    small = g.mul(g.add(e, g.div(e, g.add(e, 1.0))), 0.5)
    h = exp(g, g.mul(a, 0.5))  # exp(a) overflows before sinh(a) does
    return _flip(g, g.sel(g.lt(a, 88.0), small, g.mul(g.mul(h, 0.5), h)), _sign(g, x))


@folded(math.cosh)
def cosh(g: Graph, x: Value) -> Value:
    """Hyperbolic cosine."""
    a = g.unary("abs", x)
    h = exp(g, g.mul(a, 0.5))
    e = exp(g, g.neg(a))
    return g.fma(g.mul(h, 0.5), h, g.mul(e, 0.5))


def power(g: Graph, x: Value, n: Value) -> Value:
    """X ** n: exact products for small integers, roots for halves, exp(n log x) otherwise.

    The general case is accurate to about |n log x| ulp; a negative base takes integer exponents.
    """
    if not isinstance(n, Node):
        n = float(n)
        if not isinstance(x, Node):
            return _pow(float(x), n)
        if n == 0.5:
            return g.unary("sqrt", x)
        if n == -0.5:
            return g.div(1.0, g.unary("sqrt", x))
        if n.is_integer() and abs(n) <= 64:
            return _integer_power(g, x, int(n))
        if (2 * n).is_integer() and 0 < n <= 16:
            return g.mul(_integer_power(g, x, int(n - 0.5)), g.unary("sqrt", x))
    x, n = g.cast(x, "f"), g.cast(n, "f")
    a = g.unary("abs", x)
    y = exp(g, g.mul(n, log(g, a)))
    whole = g.eq(g.unary("floor", n), n)
    half = g.mul(n, 0.5)
    odd = g.and_(whole, g.ne(g.unary("floor", half), half))
    negative = g.lt(x, 0.0)
    y = g.sel(g.and_(negative, odd), g.neg(y), y)
    y = g.sel(g.and_(g.and_(negative, g.not_(whole)), g.lt(a, INF)), math.nan, y)
    return g.sel(g.or_(g.eq(n, 0.0), g.eq(x, 1.0)), 1.0, y)


def _integer_power(g: Graph, x: Value, n: int) -> Value:
    if n < 0:
        return g.div(1.0, _integer_power(g, g.cast(x, "f"), -n))
    out: Value = g.cast(1, x.kind)
    square = x
    while n:
        if n & 1:
            out = g.mul(out, square)
        n >>= 1
        if n:
            square = g.mul(square, square)
    return out


def _pow(x: float, n: float) -> float:
    try:
        return math.pow(x, n)
    except OverflowError:
        return INF
    except ValueError:
        return INF if x == 0 else math.nan
