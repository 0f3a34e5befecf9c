"""Two geoms in MuJoCo: their poses and contacts, and a comparison of contacts as sets."""

from __future__ import annotations

import mujoco
import numpy as np
import torch

from alloy.ops.reference.collide import COLLIDERS

PLANE, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH = 0, 2, 3, 4, 5, 6, 7
NAMES = {0: "plane", 2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box"}
MARGIN = 0.0123  # not a distance that a configuration below happens to have
UP = np.array([1.0, 0, 0, 0])


def kind_id(kind):
    return "-".join(NAMES[t] for t in kind)


class Config:
    """Pose and half sizes of two geoms, and the margin of their pair."""

    def __init__(self, pos1, quat1, size1, pos2, quat2, size2, margin=MARGIN):
        self.pose1 = np.asarray(pos1, float), np.asarray(quat1, float)
        self.pose2 = np.asarray(pos2, float), np.asarray(quat2, float)
        self.sizes = np.asarray(size1, float), np.asarray(size2, float)
        self.margin = margin

    def placed(self, rng):
        """The same two geoms somewhere else."""
        pos, quat = rng.uniform(-1, 1, 3), random_quat(rng)
        poses = ((pos + rotated(quat, p), times(quat, q)) for p, q in (self.pose1, self.pose2))
        (pos1, quat1), (pos2, quat2) = poses
        return Config(pos1, quat1, self.sizes[0], pos2, quat2, self.sizes[1], self.margin)


def random_quat(rng):
    q = rng.normal(size=4)
    return q / np.linalg.norm(q)


def turn(axis, angle):
    q = np.zeros(4)
    mujoco.mju_axisAngle2Quat(q, np.array(axis, float) / np.linalg.norm(axis), angle)
    return q


def times(a, b):
    q = np.zeros(4)
    mujoco.mju_mulQuat(q, a, b)
    return q


def rotated(quat, vec):
    out = np.zeros(3)
    mujoco.mju_rotVecQuat(out, np.array(vec, float), quat)
    return out


class Oracle:
    """MuJoCo with two geoms of given types on free bodies (a plane on a mocap body)."""

    def __init__(self, kind):
        free = '<body><freejoint/><geom type="{}" size=".1 .1 .1" mass="1"/></body>'
        fixed = '<body mocap="true"><geom type="plane" size="5 5 .1"/></body>'
        bodies = [fixed if t == PLANE else free.format(NAMES[t]) for t in kind]
        xml = f"<mujoco><worldbody>{''.join(bodies)}</worldbody></mujoco>"
        self.m = mujoco.MjModel.from_xml_string(xml)
        self.d = mujoco.MjData(self.m)
        self.m.opt.ccd_tolerance, self.m.opt.ccd_iterations = 1e-12, 1000
        solid = self.m.geom_type != PLANE
        self.m.geom_rbound[solid] = 10  # the broad phase is not under test
        self.m.geom_aabb[:, 3:] = 10

    def run(self, config):
        """Poses (2, 3) and (2, 3, 3) of the geoms, and dist, pos, frame of the contacts."""
        m, d = self.m, self.d
        m.geom_size[:] = config.sizes
        m.geom_margin[:] = config.margin, 0
        pose1, pose2 = np.concatenate(config.pose1), np.concatenate(config.pose2)
        if m.nmocap:
            d.mocap_pos[0], d.mocap_quat[0] = config.pose1
            d.qpos[:] = pose2
        else:
            d.qpos[:] = np.concatenate([pose1, pose2])
        mujoco.mj_kinematics(m, d)
        mujoco.mj_collision(m, d)
        con = d.contact
        contacts = con.dist.copy(), con.pos.copy(), con.frame.reshape(-1, 3, 3).copy()
        return d.geom_xpos.copy(), d.geom_xmat.reshape(-1, 3, 3).copy(), contacts


def arguments(poses, configs, worlds, dtype):
    """Arguments of a collider: the configurations spread over worlds and pairs."""

    def put(rows):
        return torch.tensor(np.array(rows), dtype=dtype).unflatten(0, (worlds, -1))

    sides = []
    for k in (0, 1):
        sides += [[p[0][k] for p in poses], [p[1][k] for p in poses], [c.sizes[k] for c in configs]]
    return *map(put, sides), put([c.margin for c in configs])


def collide(kind, configs, worlds=1, dtype=torch.float64):
    """Contacts of ours and of MuJoCo for each configuration, as lists of (dist, pos, frame)."""
    oracle = Oracle(kind)
    results = [oracle.run(c) for c in configs]
    args = arguments(results, configs, worlds, dtype)
    out = COLLIDERS[kind].fn(*args)
    check_promises(kind, args, out)
    dist, pos, frame = (x.flatten(0, 1).double().numpy() for x in out)
    ours = []
    for k, config in enumerate(configs):
        keep = dist[k] <= config.margin
        ours.append((dist[k][keep], pos[k][keep], frame[k][keep]))
    return ours, [r[2] for r in results]


def check_promises(kind, args, out):
    dist, pos, frame = out
    worlds, pairs = args[0].shape[:2]
    slots = COLLIDERS[kind].slots
    assert dist.shape == (worlds, pairs, slots)
    assert pos.shape == (*dist.shape, 3)
    assert frame.shape == (*dist.shape, 3, 3)
    for x in out:
        assert x.dtype == args[0].dtype
        assert torch.isfinite(x).all()
    error = frame @ frame.mT - torch.eye(3, dtype=frame.dtype)
    assert error.abs().max() < (1e-12 if frame.dtype == torch.float64 else 2e-3)


def unequal(ours, theirs, tol=1e-9):
    """Configurations whose contacts are not the same set."""
    return [k for k, (a, b) in enumerate(zip(ours, theirs, strict=True)) if not same_set(a, b, tol)]


def same_set(a, b, tol):
    if len(a[0]) != len(b[0]):
        return False
    left = list(range(len(b[0])))
    for contact in zip(*a, strict=True):
        errors = [[np.abs(x - y[k]).max() for x, y in zip(contact, b, strict=True)] for k in left]
        fits = [k for k, error in zip(left, errors, strict=True) if max(error) < tol]
        if not fits:
            return False
        left.remove(fits[0])
    return True
