"""Fields: how kernels see tensors, without a copy where worlds are last in memory."""

import pytest
import torch
import triton
import triton.language as tl

from alloy.ops.triton import lane


@triton.jit
def _add_kernel(x, numbers, out, n_world, BLOCK: tl.constexpr):
    w, m = lane.worlds_of(n_world, BLOCK)
    lane.store(out, 0, w, m, lane.load(x, 0, w, m) + numbers[1])


def test_what_is_launched_is_noted_with_the_bytes_of_fields():
    """Among the arguments is a tuple of three numbers, as long as a field."""
    x, out = torch.ones(3, 1), lane.empty(3, 1, like=torch.zeros(1))
    with lane.watch() as launched:
        lane.launch(_add_kernel, 3, x, (4, 5, 6), out)
        lane.launch(_add_kernel, 3, x[:1], (4, 5, 6), out)
    assert out.tolist() == [[6]] * 3
    assert [(n.kernel, n.bytes) for n in launched] == [("add", 8), ("add", 4)]  # one is shared


def test_world_last_memory_is_not_copied():
    x = torch.arange(12.0).reshape(4, 3).movedim(-1, 0)  # 3 worlds
    pointer, step, stride = lane.field(x, 3)
    assert pointer.data_ptr() == x.data_ptr() and (step, stride) == (3, 1)


def test_shared_and_expanded_tensors_have_stride_zero():
    x = torch.arange(4.0)[None]
    for shared in (x, x.expand(5, 4)):
        pointer, step, stride = lane.field(shared, 5)
        assert pointer.tolist() == [0, 1, 2, 3] and (step, stride) == (1, 0)
    # one world of several in memory: its values are not next to each other
    strided = torch.arange(12.0).reshape(4, 3).movedim(-1, 0)[1:2]
    assert lane.field(strided, 1)[0].is_contiguous()


def test_world_first_memory_is_copied():
    x = torch.arange(12.0).reshape(3, 4)
    pointer, step, stride = lane.field(x, 3)
    assert (step, stride) == (3, 1) and pointer.reshape(4, 3).T.equal(x)


def test_wrong_numbers_of_worlds_are_refused():
    with pytest.raises(ValueError, match=r"expected 1 or 3 worlds, received shape \(2, 4\)"):
        lane.field(torch.zeros(2, 4), 3)
    with pytest.raises(ValueError, match="fewer worlds"):
        lane.field(torch.zeros(1).expand(2**16, 2**15 + 1), 2**16)
