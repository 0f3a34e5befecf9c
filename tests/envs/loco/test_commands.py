"""The commands on a walking policy: evaluate, train, play; on policies made for the purpose."""

import json

import pytest
import torch

from alloy.envs.loco import ENV_ID, SHIPPED, evaluate, go2_velocity, play, train
from alloy.envs.loco.by_command import KINDS, ByCommand, kind_of, text
from alloy.envs.robots_go2 import JOINTS, STANDING
from alloy.envs.wrappers.policy import Policy
from alloy.envs.wrappers.policy_file import load_policy, save_weights


def standing_policy():
    """Asks for the standing pose, whatever it sees."""
    env = go2_velocity(1, engine="reference")
    low, high = env.program.actions.bounds
    pose = torch.tensor([STANDING[name] for name in JOINTS])
    policy = Policy([45, 12], "elu")
    policy.net[0].bias.copy_((pose - 0.5 * (low + high)) / (0.5 * (high - low)))
    return policy.eval()


@pytest.fixture(scope="module")
def stands(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "stands.safetensors"
    save_weights(standing_policy(), path, {"env_id": ENV_ID})
    return path


def test_a_kind_of_command_is_what_it_asks_for_most():
    command = torch.tensor(
        [[0, 0, 0], [0.6, -0.2, 0.5], [-0.6, 0.1, 0], [0.3, 0.4, 0], [0.4, -0.3, 0],
         [0.1, 0, 0.2], [0, 0, -0.1]]
    )  # fmt: skip
    kinds = kind_of(command, (1.0, 0.5, 1.0))
    assert [KINDS[k] for k in kinds] == list(KINDS)


def test_the_table_counts_each_worlds_first_episode():
    env = go2_velocity(2, engine="reference")
    measure = ByCommand((1.0, 0.5, 1.0))
    command = torch.tensor([[1.0, 0, 0], [0, 0, 0]])

    def step(error, fell, ended):
        return measure(
            env,
            {
                "command": command,
                "linear_error": torch.tensor(error),
                "turning_error": torch.zeros(2),
                "terms": {"fall": -torch.tensor(fell, dtype=torch.float32)},
                "_final_obs": torch.tensor(ended),
            },
        )

    step([0.2, 0.1], [0, 0], [False, False])
    step([0.4, 0.1], [1, 0], [True, False])
    step([9.0, 0.4], [1, 0], [True, True])  # the first world is done
    rows = {row["command"]: row for row in measure.table()}
    assert rows["ahead"]["steps"] == 2
    assert rows["ahead"]["linear_error"] == pytest.approx(0.3)
    assert rows["ahead"]["falls"] == 1
    assert rows["stand"]["linear_error"] == pytest.approx(0.2)
    assert rows["stand"]["falls"] == 0
    assert len(text(measure.table()).splitlines()) == 3


def test_who_only_stands_does_not_succeed_unless_told_to(stands, tmp_path, caplog):
    common = ["--episodes", "4", "--engine", "reference", "--out", str(tmp_path / "walk.json")]
    short = ["max_steps=40", "push_speed=0"]
    caplog.set_level("INFO")
    assert evaluate.main([str(stands), *common, "--env", *short, "standing=1.0"]) == 0
    told = json.loads((tmp_path / "walk.json").read_text())
    assert told["success"]["rate"] == 1.0
    assert [row["command"] for row in told["by_command"]] == ["stand"]
    assert told["rule"]["mean_linear_error_at_most"] == 0.25
    assert "4 of 4 episodes succeed" in caplog.text
    walk = ["vx=(0.9,0.9)", "vy=(0,0)", "yaw=(0,0)", "standing=0.0"]
    assert evaluate.main([str(stands), *common, "--env", *short, *walk]) == 0
    result = json.loads((tmp_path / "walk.json").read_text())
    assert result["success"]["rate"] == 0.0
    assert result["means"]["linear_error"]["mean"] == pytest.approx(0.9, abs=0.15)


def test_a_policy_of_another_task_is_refused(tmp_path, caplog):
    path = tmp_path / "other.safetensors"
    save_weights(standing_policy(), path, {"env_id": "GripperLift-v0"})
    for command in (evaluate, play):
        assert command.main([str(path)]) == 2
        assert "holds a policy for 'GripperLift-v0'" in caplog.text
        caplog.clear()


def test_options_that_are_none_are_refused(stands, caplog):
    assert evaluate.main([str(stands), "--episodes", "2", "--env", "pushspeed=1"]) == 2
    assert "takes no argument 'pushspeed'; did you mean 'push_speed'" in caplog.text


def test_training_leaves_a_policy_and_its_evaluation(tmp_path, caplog):
    flags = ["--iterations", "1", "--worlds", "4", "--episodes", "2", "--no-progress", "--no-video"]
    flags += ["--set", "steps=4", "actor=[8]", "critic=[8]", "--env", "max_steps=8"]
    assert train.main([*flags, "--engine", "reference", "--log-dir", str(tmp_path)]) == 0
    policy, about = load_policy(tmp_path / "policy.safetensors")
    assert about["env_id"] == ENV_ID
    assert policy.config["sizes"] == [45, 8, 12]
    assert json.loads((tmp_path / "walk.json").read_text())["episodes"] == 2


def test_a_window_needs_a_display(stands, monkeypatch, caplog):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    assert play.main([str(stands), "--view", "--engine", "reference"]) == 2
    assert "a window needs a display" in caplog.text


def test_a_given_command_is_the_only_one():
    options = play.options_of([0.5, 0.0, -0.2])
    env = go2_velocity(3, engine="reference", **options)
    env.reset(seed=0)
    assert env._episode.memory["velocity command"].tolist() == [pytest.approx([0.5, 0, -0.2])] * 3


def test_the_policy_that_comes_with_alloy_walks(tmp_path):
    """Its evaluation lies beside it; here it only has to do better than standing still."""
    assert SHIPPED.stat().st_size < 1_000_000
    said = json.loads(SHIPPED.with_suffix(".json").read_text())
    assert said["success"]["rate"] >= 0.95
    assert said["episodes"] == 256
    assert load_policy(SHIPPED)[1]["seed"] == said["policy"]["seed"]
    out = tmp_path / "walk.json"
    walk = ["vx=(0.6,0.6)", "vy=(0,0)", "yaw=(0,0)", "standing=0.0", "max_steps=100"]
    flags = ["--episodes", "4", "--engine", "reference", "--out", str(out), "--env", *walk]
    assert evaluate.main(flags) == 0
    result = json.loads(out.read_text())
    assert result["terminated"] == 0
    assert result["means"]["linear_error"]["mean"] < 0.3  # it starts from rest
