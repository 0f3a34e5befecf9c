"""Small models written for one feature each."""

# every joint type, anchors off the origin, turned bodies, a mocap body, two trees, fixed bodies
JOINTS = """
<mujoco><worldbody><body name="a" pos="0 0 .5" quat="1 .2 .3 .1"><freejoint/>
  <geom type="box" size=".1 .2 .05"/>
  <body pos=".3 0 0" euler="10 20 30"><joint type="ball" pos=".05 .01 0"/>
    <geom type="capsule" size=".05 .1"/>
    <body pos="0 .2 .1"><joint type="hinge" axis="1 1 0" pos="0 .1 0" ref=".3"/>
      <joint type="slide" axis="0 1 1"/><joint type="hinge" axis="0 0 1" pos=".1 0 0"/>
      <geom size=".06"/>
      <body pos=".1 0 .1" quat="1 1 0 0"><geom size=".02"/>
      <site pos=".1 0 0" euler="0 0 30"/></body>
    </body></body></body>
  <body mocap="true" pos="1 0 1" quat="1 0 1 0"><geom size=".1" contype="0" conaffinity="0"/></body>
  <body pos="2 0 1"><joint type="ball" damping=".1"/><geom type="capsule" size=".05 .1"/></body>
</worldbody><option><flag contact="disable"/></option></mujoco>"""

# fast turning ball joints: Runge-Kutta must combine rotations as MuJoCo does
SPINNING = """
<mujoco><option timestep=".005"/><worldbody>
  <body><joint type="ball" damping=".05"/>
      <geom type="box" size=".05 .1 .2" mass="1" pos=".1 .2 .3"/>
    <body pos="0 0 .5"><joint type="ball"/>
      <geom type="box" size=".05 .1 .2" mass="1"/></body></body>
  <body pos="2 0 0"><freejoint/><geom type="box" size=".1 .2 .3"/></body>
</worldbody></mujoco>"""

# limits of every kind, friction loss, both sides of a narrow range
LIMITS = """
<mujoco><worldbody>
  <body><joint name="h" type="hinge" axis="0 1 0" range="-20 20" margin=".1"/>
    <geom type="capsule" size=".05" fromto="0 0 0 .3 0 0"/>
    <body pos=".3 0 0"><joint type="slide" axis="1 0 0" range="-.1 .2" frictionloss=".5"/>
      <geom size=".1"/>
      <body pos=".2 0 0"><joint type="ball" range="0 20" margin=".05" frictionloss=".1"/>
        <geom type="capsule" size=".05" fromto="0 0 0 .3 0 0"/>
        <body pos=".3 0 0"><joint type="hinge" axis="0 0 1" range="-5 5" margin=".2"
          solreflimit="-500 -10" solimplimit=".8 .95 .02 .3 3"/>
          <geom type="capsule" size=".05" fromto="0 0 0 .3 0 0"/></body>
      </body></body></body>
</worldbody><option><flag contact="disable"/></option></mujoco>"""

EQUALITIES = """
<mujoco><worldbody>
  <body name="a" pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .3"/></body>
  <body name="b" pos=".5 0 1"><freejoint/><geom type="box" size=".2 .1 .1"/></body>
  <body name="c" pos="1 0 1" euler="0 30 0"><joint name="j1" axis="0 1 0"/>
    <geom size=".1" pos=".2 0 0"/>
    <body pos=".3 0 0"><joint name="j2" axis="0 0 1" ref=".2"/><geom size=".1" pos=".2 0 0"/>
      <body pos=".3 0 0"><joint name="j3" type="slide" axis="0 0 1"/><geom size=".1" pos=".2 0 0"/>
      </body></body></body>
  <body name="mo" mocap="true" pos="0 1 1"/>
</worldbody>
<equality>
  <connect body1="a" body2="b" anchor=".2 .1 0" solref=".05 .8"/>
  <weld body1="b" body2="c" torquescale=".7"/>
  <weld body1="mo" body2="a" relpose="0 0 .5 1 0 0 0" solimp=".8 .9 .1"/>
  <connect body1="c" anchor="0 .1 .2"/>
  <joint joint1="j1" joint2="j2" polycoef=".1 .5 .2 -.1 .05"/>
  <joint joint1="j3" polycoef=".1 0 0 0 0"/>
  <weld name="off" body1="a" active="false"/>
</equality><option><flag contact="disable"/></option></mujoco>"""


def contacts(condim: int = 3, cone: str = "pyramidal", impratio: float = 1, extra: str = "") -> str:
    """Bodies that lie and lean on a plane and on each other, with mixed contact parameters."""
    return f"""
<mujoco><option cone="{cone}" impratio="{impratio}" {extra}/>
<default><geom condim="{condim}" friction=".8 .02 .01"/></default>
<worldbody><geom name="floor" type="plane" size="5 5 1" friction=".5 .03 .004" solmix="2"/>
  <body pos="0 0 .09"><freejoint/><geom size=".1"/></body>
  <body pos=".4 0 .1" euler="88 0 3"><freejoint/>
    <geom type="capsule" size=".1 .2" priority="1" friction=".7 .01 .02" solref="-800 -30"/></body>
  <body pos=".5 .2 .28" euler="3 2 40"><freejoint/>
    <geom type="capsule" size=".09 .1" solref=".03 .9" solimp=".85 .97 .002 .4 3"
      solmix=".5"/></body>
  <body pos="-.6 0 .195" euler="1 2 3"><freejoint/>
    <geom type="box" size=".2 .2 .2" margin=".01" gap=".01"/>
    <body pos="0 0 .29"><joint axis="0 1 0"/><geom size=".1"/></body></body>
  <body pos="-.6 .29 .1"><joint type="slide" axis="0 1 0" damping="1"/><geom size=".1"/></body>
</worldbody></mujoco>"""


CONTACTS = {
    f"condim{dim}-{cone}-{ratio}": contacts(dim, cone, ratio)
    for dim in (1, 3, 4, 6)
    for cone, ratio in (("pyramidal", 1), ("elliptic", 1), ("elliptic", 10), ("pyramidal", 3))
}
