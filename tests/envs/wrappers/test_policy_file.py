"""Policies as files: what is written says the same, and what is no policy is refused."""

import pytest
import torch

from alloy.envs.wrappers import export as command
from alloy.envs.wrappers import policy_file
from alloy.envs.wrappers.policy import Policy
from alloy.envs.wrappers.policy_file import PolicyFileError, export, load_policy, save_weights


@pytest.fixture
def policy():
    torch.manual_seed(0)
    policy = Policy([5, 16, 3], "elu", clip_observations=4.0)
    for p in policy.parameters():
        p.copy_(torch.randn_like(p))
    policy.set_normalizer(torch.arange(5.0), torch.full((5,), 0.5))
    policy.set_bounds(torch.tensor([-2.0, -1.0, 0.0]), torch.tensor([2.0, 1.0, 5.0]))
    return policy.eval()


@pytest.mark.parametrize("ending", ["onnx", "pt", "ts"])
def test_an_exported_policy_says_the_same(policy, tmp_path, ending):
    path = tmp_path / "made" / f"policy.{ending}"
    assert export(policy, path) < 1e-5
    assert path.stat().st_size > 100
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_weights_come_back_whole(policy, tmp_path):
    path = tmp_path / "policy.safetensors"
    save_weights(policy, path, {"env_id": "Some-v0", "seed": 3})
    again, about = load_policy(path)
    assert about == {"env_id": "Some-v0", "seed": 3}
    assert again.config == policy.config
    obs = torch.randn(9, 5)
    assert torch.equal(again.act(obs), policy.act(obs))


def test_a_policy_that_does_not_say_the_same_is_not_kept(policy, tmp_path, monkeypatch):
    path = tmp_path / "policy.pt"
    real = policy_file._torchscript
    monkeypatch.setattr(policy_file, "_torchscript", lambda *a: real(*a) + 1e-3)
    with pytest.raises(PolicyFileError, match=r"actions differ by 0\.001"):
        export(policy, path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("none.safetensors", None, "there is no policy"),
        ("torn.safetensors", b"12345678 and more", "is no safetensors file"),
        ("other.pt", b"nothing", "is no checkpoint"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, capsys, caplog, name, content, what):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert command.main([str(path), str(tmp_path / "out.onnx")]) == 2
    assert what in caplog.text
    assert not (tmp_path / "out.onnx").exists()


def test_another_format_is_refused(policy, tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "policy.safetensors"
    save_file({"a": torch.zeros(1)}, str(path))
    with pytest.raises(PolicyFileError, match="holds no policy of this version"):
        load_policy(path)


def test_an_ending_that_is_not_known_is_refused(policy, tmp_path):
    with pytest.raises(PolicyFileError, match=r"one of \['.onnx', '.pt', '.ts'\], not '.h5'"):
        export(policy, tmp_path / "policy.h5")


def test_a_missing_package_comes_with_its_pip_line(policy, tmp_path, monkeypatch):
    find = policy_file.importlib.util.find_spec
    monkeypatch.setattr(
        policy_file.importlib.util, "find_spec", lambda n: None if n == "onnx" else find(n)
    )
    with pytest.raises(PolicyFileError, match="pip install onnx"):
        export(policy, tmp_path / "policy.onnx")


def test_the_command_writes_what_its_ending_says(policy, tmp_path, caplog):
    weights = tmp_path / "policy.safetensors"
    save_weights(policy, weights, {"env_id": "Some-v0"})
    assert command.main([str(weights), str(tmp_path / "policy.pt")]) == 0
    loaded = torch.jit.load(str(tmp_path / "policy.pt"))
    obs = torch.randn(4, 5)
    torch.testing.assert_close(loaded(obs), policy(obs))
