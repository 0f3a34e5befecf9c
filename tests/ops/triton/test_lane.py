"""Fields: how kernels see tensors, without a copy where worlds are last in memory."""

import pytest
import torch

from alloy.ops.triton import lane


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
