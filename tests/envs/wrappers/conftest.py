"""Training settles torch's deterministic settings; the next test finds those of tests/conftest."""

import pytest
import torch


@pytest.fixture(autouse=True)
def settings_as_they_were():
    filled = torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.utils.deterministic.fill_uninitialized_memory = filled
    torch.set_num_threads(1)
