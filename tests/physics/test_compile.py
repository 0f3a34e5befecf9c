"""torch.compile of the whole step: one graph, equal to eager, for any number of worlds."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from alloy.ops import control
from alloy.physics import forward, io
from alloy.physics.model import INPUTS, STATE, Data, Model, make_data
from tests.physics.fixture import load

# limits, pyramidal contacts, motors, joint damping: every part of a step, and little of each
SMALL = """
<mujoco><option timestep=".005"/><worldbody><geom type="plane" size="2 2 .1"/>
  <body pos="0 0 .3"><joint axis="0 1 0" damping=".05" name="swing"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.25" size=".04"/>
    <body pos="0 0 -.25"><joint axis="0 1 0" range="-20 20"/><geom size=".06"/></body></body>
</worldbody><actuator><motor joint="swing" gear="3"/></actuator></mujoco>"""
ELLIPTIC = SMALL.replace("<option ", '<option cone="elliptic" ').replace(
    "<joint axis", '<joint frictionloss=".1" axis', 1
)
RESULTS = (*STATE, "xpos", "qacc", "qfrc_constraint", "efc_force", "solver_niter")


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def worlds_of(m: Model, worlds: int) -> Data:
    """Worlds that differ, some of them in contact."""
    g = torch.Generator().manual_seed(worlds)
    d = make_data(m, worlds)
    dtype = d.qpos.dtype
    moved = d.qpos + 0.2 * torch.randn(d.qpos.shape, generator=g, dtype=dtype)
    return replace(d, qpos=moved, ctrl=torch.rand(d.ctrl.shape, generator=g, dtype=dtype))


def step_of(m: Model) -> Callable[..., tuple[Tensor, ...]]:
    def step(*values: Tensor) -> tuple[Tensor, ...]:
        d = forward.step(m, Data(**dict(zip(STATE + INPUTS, values, strict=True))))
        return tuple(getattr(d, name) for name in RESULTS)

    return step


class Counting:
    """A backend that runs what dynamo captured as it is, and counts the graphs."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, gm, inputs):
        self.graphs += 1
        return gm.forward


def compiled_equals_eager(m: Model, backend: object, worlds: tuple[int, ...], atol: float) -> None:
    """Two steps for every world count in turn, from states laid out in memory as results are."""
    step = step_of(m)
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    touched = False
    for count in worlds:
        d = worlds_of(m, count)
        for _ in range(2):
            values = [getattr(d, name).contiguous() for name in STATE + INPUTS]
            expected, actual = step(*values), compiled(*values)
            for name, a, b in zip(RESULTS, actual, expected, strict=True):
                if a.is_floating_point() and a.numel():
                    close = (a - b).abs().max() <= atol * (1 + b.abs().max())
                    assert close, f"{name}: {(a - b).abs().max():.2e} apart"
            touched |= bool(expected[-1].any())
            d = replace(d, **dict(zip(STATE, expected, strict=False)))
    assert touched  # the solver had something to do


def test_one_graph_and_another_for_all_other_world_counts():
    backend = Counting()
    m = io.put_model(load(SMALL), dtype=torch.float64)
    compiled_equals_eager(m, backend, (3, 5, 7), 1e-12)
    assert backend.graphs <= 2


@pytest.mark.slow
@pytest.mark.parametrize("source", [ELLIPTIC, "half_cheetah.xml"], ids=["elliptic", "half_cheetah"])
def test_one_graph_and_another_for_larger_models(source):
    backend = Counting()
    m = io.put_model(load(source), dtype=torch.float32)
    compiled_equals_eager(m, backend, (3, 5, 7), 1e-6)
    assert backend.graphs <= 2


@pytest.mark.slow
def test_memory_layouts_settle_by_the_second_call():
    """State is allocated with the world axis last in memory; results may be laid out otherwise."""
    backend = Counting()
    m = io.put_model(load(SMALL), dtype=torch.float64)
    compiled, d = torch.compile(step_of(m), fullgraph=True, backend=backend), worlds_of(m, 3)
    graphs = []
    for _ in range(4):
        results = compiled(*(getattr(d, name) for name in STATE + INPUTS))
        d = replace(d, **dict(zip(STATE, results, strict=False)))
        graphs.append(backend.graphs)
    assert graphs[1:] == [graphs[1]] * 3


def mean(a: Tensor, g: Tensor) -> Tensor:
    """Arithmetic-geometric mean: a loop in a loop, each world for as long as it needs."""

    def square_root(y: Tensor) -> Tensor:
        def body(on: Tensor, r: Tensor) -> control.Carry:
            new = torch.where(on, 0.5 * (r + y / r), r)
            return on & ((new - r).abs() > 1e-14 * new), new

        return control.while_loop(body, (y > 0, torch.ones_like(y)), 60)[1]

    def body(on: Tensor, a: Tensor, g: Tensor) -> control.Carry:
        half, root = 0.5 * (a + g), square_root(a * g)
        a, g = torch.where(on, half, a), torch.where(on, root, g)
        return on & ((a - g).abs() > 1e-12 * a), a, g

    return control.while_loop(body, (a != g, a, g), 60)[1]


def test_nested_loops_through_inductor():
    a = torch.tensor([24.0, 1.0, 3.0, 1e4], dtype=torch.float64)
    g = torch.tensor([6.0, 2**0.5, 3.0, 1e-3], dtype=torch.float64)
    expected = torch.tensor([13.4581714817256, 1.19814023473559, 3.0], dtype=torch.float64)
    torch.testing.assert_close(mean(a, g)[:3], expected, rtol=1e-13, atol=0)
    alone = torch.cat([mean(a[k : k + 1], g[k : k + 1]) for k in range(4)])
    assert torch.equal(mean(a, g), alone)  # no world's result depends on its neighbours
    compiled = torch.compile(mean, fullgraph=True)
    torch.testing.assert_close(compiled(a, g), alone, rtol=1e-13, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_small_step_through_inductor(dtype, atol):
    m = io.put_model(load(SMALL), dtype=dtype)
    compiled_equals_eager(m, "inductor", (3, 5), atol)


@pytest.mark.slow
def test_half_cheetah_through_inductor():
    m = io.put_model(load("half_cheetah.xml"), dtype=torch.float64)
    compiled_equals_eager(m, "inductor", (4, 6), 1e-11)
