"""One small model for each feature of MuJoCo, supported or not, by section and name.

`scripts/support_table.py` writes the table of features from it, `scripts/conformance.py` compares
the models with MuJoCo.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

BODIES = """<mujoco>{top}<worldbody><site name="w" pos=".3 .2 1"/><camera name="eye"/>
  <body name="a" pos="0 0 .5"><joint name="h" axis="0 1 0" {joint}/>
    <geom name="ga" type="capsule" size=".02" fromto="0 0 0 .3 0 0" {geom}/>
    <site name="sa" pos=".1 0 .1"/>
    <body name="b" pos=".3 0 0"><joint name="s" type="slide" axis="1 0 .3"/>
      <geom name="gb" size=".05"/><site name="sb" pos=".2 0 .1"/>
      <body pos="0 .2 0"><joint name="q" type="ball" {ball}/><geom size=".05" pos=".05 0 0"/>
      </body></body></body>
  <body name="f" pos="-.5 0 .5"><freejoint/><geom name="gf" type="box" size=".1 .05 .2"
    pos=".02 0 0"/><site name="sf" pos="0 0 .1"/></body>{more}</worldbody>{rest}</mujoco>"""


def _model(**parts: str) -> str:
    keys = ("top", "joint", "geom", "ball", "more", "rest")
    return BODIES.format(**({key: "" for key in keys} | parts))


def _option(text: str, flag: str = "") -> str:
    return _model(top=f"<option {text}>{flag}</option>")


def _tendon(text: str, rest: str = "") -> str:
    return _model(rest=f"<tendon>{text}</tendon>{rest}")


def _actuator(text: str) -> str:
    return _model(rest=f"<tendon>{SPATIAL.format('')}</tendon><actuator>{text}</actuator>")


def _sensor(text: str) -> str:
    return _model(
        joint='range="-20 20"',
        more='<geom type="plane" size="9 9 1" pos="0 0 .2"/><site name="big" size=".6"/>'
        '<camera name="guard" mode="targetbody" target="b" pos="1 1 1"/>'
        '<camera name="lens" resolution="4 3" pos=".1 .2 1.5" sensorsize=".01 .008" '
        'focal=".02 .03" principal=".004 .005"/>',
        rest=f"<tendon>{FIXED.format('range=' + chr(34) + '-.1 .1' + chr(34))}</tendon>"
        f'<actuator><motor name="m" joint="h"/></actuator><sensor>{text}</sensor>',
    )


FIXED = '<fixed name="t" {}><joint joint="h" coef="2"/><joint joint="s" coef="-1"/></fixed>'
SPATIAL = '<spatial name="r" {}><site site="w"/><site site="sa"/><site site="sb"/></spatial>'
WRAPPED = '<spatial name="r"><site site="w"/><geom geom="{}"{}/><site site="sb"/></spatial>'
POST = (
    '<geom name="post" type="cylinder" size=".06 .3" pos=".2 .1 .7" contype="0" conaffinity="0"/>'
)
MUSCLE = 'lengthrange="-1 1"'

_FEATURES = {
    "integrator": {
        name: _option(f'integrator="{name}"')
        for name in ("Euler", "RK4", "implicitfast", "implicit")
    },
    "option": {
        "cone pyramidal": _option('cone="pyramidal"'),
        "cone elliptic": _option('cone="elliptic"'),
        "solver Newton": _option('solver="Newton"'),
        "solver CG": _option('solver="CG"'),
        "solver PGS": _option('solver="PGS"'),
        "noslip": _model(
            top='<option noslip_iterations="3"/>',
            joint='frictionloss=".3"',
            more='<geom type="plane" size="3 3 1" pos="0 0 .3"/>',
        ),
        "noslip, elliptic": _model(
            top='<option noslip_iterations="100" noslip_tolerance="0" cone="elliptic"/>',
            more='<geom type="plane" size="3 3 1" pos="0 0 .3"/>',
        ),
        "override of contact parameters": _model(
            top='<option o_margin=".05" o_solref=".03 .9" o_solimp=".8 .9 .01 .4 3" '
            'o_friction=".3 .4 .05 .06 .07" cone="elliptic"><flag override="enable"/></option>',
            more='<geom type="plane" size="3 3 1" pos="0 0 .3" condim="6"/>',
        ),
        "sleep": _option("", '<flag sleep="enable"/>'),
        "fluid, inertia box": _option('density="1.2" viscosity=".1" wind="1 0 0"'),
        "fluid, ellipsoid": _model(
            top='<option density="9" viscosity=".1" wind="1 0 0"/>', geom='fluidshape="ellipsoid"'
        ),
    },
    "joint": {
        "hinge, slide, ball, free": _model(),
        "limits": _model(joint='range="-20 20"', ball='range="0 20"'),
        "springs and damping": _model(joint='stiffness="3" damping=".2"', ball='stiffness="1"'),
        "friction loss": _model(joint='frictionloss=".3"'),
        "armature": _model(joint='armature=".1"'),
        "polynomial stiffness": _model(joint='stiffness="3 1"'),
        "polynomial damping": _model(joint='damping=".3 1"'),
        "plastic spring": _model(
            joint='stiffness="3" springyield="9"', ball='stiffness="2" springyield="15"'
        ),
        "gravity compensation": _model(more='<body gravcomp="1"><joint/><geom size=".1"/></body>'),
        "mocap body": _model(more='<body mocap="true"><geom size=".1" contype="0"/></body>'),
    },
    "equality": {
        name: _tendon(
            FIXED.format("") + (SPATIAL.format("") if name == "tendon" else ""),
            f"<equality>{text}</equality>",
        )
        for name, text in {
            "connect": '<connect body1="a" body2="f" anchor=".1 0 0"/>',
            "connect between sites": '<connect site1="sa" site2="sf"/>',
            "weld": '<weld body1="b" body2="f"/>',
            "weld between sites": '<weld site1="sa" site2="sf"/>',
            "joint": '<joint joint1="h" joint2="s" polycoef=".1 1 .5 0 0"/>',
            "tendon": '<tendon tendon1="t" tendon2="r" polycoef=".1 1 .5 0 0"/>',
        }.items()
    },
    "tendon": {
        "fixed": _tendon(FIXED.format('stiffness="3" damping="1"')),
        "spatial": _tendon(SPATIAL.format('stiffness="3" damping="1"')),
        "pulley": _tendon(
            '<spatial><site site="w"/><site site="sa"/><pulley divisor="2"/><site site="sb"/>'
            '<site site="sf"/></spatial>'
        ),
        "wrapping around a sphere": _tendon(WRAPPED.format("gb", "")),
        "wrapping around a cylinder": _model(
            more=POST, rest=f'<tendon>{WRAPPED.format("post", "")}</tendon>'
        ),
        "side site": _tendon(WRAPPED.format("gb", ' sidesite="sa"')),
        "limits": _tendon(SPATIAL.format('range="0 .5"') + FIXED.format('range="-.1 .1"')),
        "friction loss": _tendon(SPATIAL.format('frictionloss=".2"')),
        "armature": _tendon(FIXED.format('armature=".2"') + SPATIAL.format('armature=".3"')),
        "polynomial stiffness and damping": _tendon(
            FIXED.format('stiffness="3 1" damping="1 .5"') + SPATIAL.format('stiffness="0 2 1"')
        ),
        "plastic spring": _tendon(
            FIXED.format('stiffness="3" springyield=".1" springlength="0 .2"')
            + SPATIAL.format('stiffness="3" springyield=".01"')
        ),
    },
    "transmission": {
        name: _actuator(text)
        for name, text in {
            "joint": '<motor joint="h" gear="2"/><motor joint="q" gear="1 2 3"/>',
            "joint in parent": '<motor jointinparent="q" gear="1 2 3"/>',
            "tendon": '<position tendon="r" kp="3"/>',
            "site": '<motor site="sb" gear="1 2 3 4 5 6"/>',
            "site with reference": '<position site="sb" refsite="w" gear="1 2 3 1 0 0" kp="2"/>',
            "slider-crank": '<motor cranksite="sb" slidersite="w" cranklength=".8"/>',
            "body (adhesion)": '<adhesion body="f" ctrlrange="0 1"/>',
        }.items()
    },
    "actuator": {
        name: _actuator(text)
        for name, text in {
            "motor": '<motor joint="h" ctrlrange="-.5 .5"/>',
            "position": '<position joint="h" kp="9" kv="1" forcerange="-1 1"/>',
            "velocity": '<velocity joint="h" kv="2"/>',
            "damper": '<damper joint="h" kv="2" ctrlrange="0 1"/>',
            "intvelocity": '<intvelocity joint="h" kp="9" actrange="-1 1"/>',
            "filter": '<general joint="h" dyntype="filter" dynprm=".1"/>',
            "filterexact": '<general joint="h" dyntype="filterexact" dynprm=".1"/>',
            "muscle": f'<muscle joint="h" {MUSCLE}/>',
            "dcmotor": '<dcmotor joint="h" motorconst="1 1" resistance="2"/>',
            "dcmotor with a coil, heat and friction": '<dcmotor joint="h" motorconst="1 1" '
            'resistance="2" inductance=".1" thermal="3 2 0 .004 20 25" lugre="9 2 .5 .8 .1" '
            'cogging=".3 7 .2" saturation="3 0 90"/>',
            "dcmotor with a controller": '<dcmotor joint="h" motorconst="1 1" resistance="2" '
            'input="pos" controller="9 3 1 4 .2 5"/>',
            "dcmotor with two controls": '<dcmotor joint="h" motorconst="1 1" resistance="2" '
            'input="pos vel" controller="9 0 1"/>',
            "damping and armature": '<motor joint="h" damping=".2 .1" armature=".1" gear="2"/>'
            '<motor tendon="r" damping=".2" armature=".1"/>',
            "dcmotor without controls": '<dcmotor joint="h" motorconst="1 1" resistance="2" '
            'input="none" cogging=".3 7 .2"/>',
            "pid": '<pid joint="h" kp="9" kv="1"/>',
            "pid with everything": '<pid joint="h" kp="9" kv="1" ki="4" imax=".3" slewmax="9" '
            'input="pos vel ff" posrange="-.5 .5" velrange="-1 1" ffrange="-1 .2"/>',
            "orientation": '<orientation joint="q" kp="3" kv=".5"/>',
            "orientation of a site": '<orientation site="sb" refsite="w" kp="3" kv=".5" '
            'forcerange="0 2"/>',
            "orientation by a quaternion": '<orientation joint="q" kp="3" input="quat"/>',
            "orientation by its rate": '<general joint="q" gaintype="so3" biastype="so3" '
            'dyntype="integrator" gainprm="3" biasprm="0 -3 -.5"/>',
            "user": '<general joint="h" gaintype="user"/>',
            "delay": '<motor joint="h" delay=".01" nsample="10"/>',
            "delay, linear and cubic": '<motor joint="h" delay=".011" nsample="9" interp="linear"/>'
            '<motor joint="s" delay=".011" nsample="10" interp="cubic"/>',
        }.items()
    },
    "sensor": {
        name: _sensor(text)
        for name, text in {
            "accelerometer": '<accelerometer site="sb"/>',
            "gyro": '<gyro site="sb"/>',
            "velocimeter": '<velocimeter site="sb"/>',
            "magnetometer": '<magnetometer site="sb"/>',
            "force": '<force site="sb"/>',
            "torque": '<torque site="sb"/>',
            "touch": '<touch site="sb"/>',
            "rangefinder": '<rangefinder site="sb"/>',
            "rangefinder, every field":
                '<rangefinder site="sf" data="dist dir origin point normal depth" cutoff="2"/>',
            "rangefinder of a camera": '<rangefinder camera="lens" data="dist normal depth"/>'
            '<rangefinder camera="guard"/>',
            "camprojection": '<camprojection site="sb" camera="eye"/>',
            "joint position and velocity": '<jointpos joint="h"/><jointvel joint="h"/>',
            "joint limit": '<jointlimitpos joint="h"/><jointlimitfrc joint="h"/>',
            "joint actuator force": '<jointactuatorfrc joint="h"/>',
            "ball orientation and velocity": '<ballquat joint="q"/><ballangvel joint="q"/>',
            "tendon position and velocity": '<tendonpos tendon="t"/><tendonvel tendon="t"/>',
            "tendon limit": '<tendonlimitpos tendon="t"/><tendonlimitfrc tendon="t"/>',
            "tendon actuator force": '<tendonactuatorfrc tendon="t"/>',
            "actuator": '<actuatorpos actuator="m"/><actuatorfrc actuator="m"/>',
            "frame pose": '<framepos objtype="site" objname="sb"/>'
            '<framequat objtype="body" objname="b"/><framexaxis objtype="geom" objname="gb"/>',
            "frame velocity": '<framelinvel objtype="site" objname="sb"/>'
            '<frameangvel objtype="xbody" objname="b" reftype="site" refname="w"/>',
            "frame acceleration": '<framelinacc objtype="site" objname="sb"/>',
            "frame of a camera": '<framepos objtype="camera" objname="eye"/>'
            '<framequat objtype="camera" objname="eye"/>'
            '<framelinvel objtype="body" objname="b" reftype="camera" refname="eye"/>',
            "frame of a camera that moves by itself": '<framepos objtype="camera" objname="guard"/>'
            '<framezaxis objtype="camera" objname="guard"/>',
            "subtree": '<subtreecom body="a"/><subtreelinvel body="a"/>'
            '<subtreeangmom body="a"/>',
            "energy": "<e_potential/><e_kinetic/>",
            "clock": "<clock/>",
            "cutoff": '<jointpos joint="h" cutoff=".1"/>',
            "delay": '<gyro site="sb" delay=".01" nsample="8"/>'
            '<framequat objtype="body" objname="b" delay=".005" nsample="4" interp="linear"/>'
            '<accelerometer site="sf" delay=".005" nsample="4" interp="cubic"/>',
            "interval": '<gyro site="sb" interval=".006" nsample="1"/>'
            '<jointpos joint="h" interval=".005 -.003" delay=".0045" nsample="4" interp="linear"/>',
            "geom distance": '<distance geom1="ga" geom2="gf" cutoff="1"/>',
            "normal and segment between bodies": '<normal body1="a" body2="f" cutoff="1"/>'
            '<fromto body1="a" body2="f" cutoff="1"/>',
            "inside site": '<insidesite site="big" objtype="body" objname="a"/>'
            '<insidesite site="big" objtype="camera" objname="eye"/>',
            "contact": '<contact geom1="ga"/>',
            "contact, nearest": '<contact subtree1="a" num="3" reduce="mindist" data="dist pos"/>',
            "contact, strongest in a site": '<contact site="sf" reduce="maxforce" data="force"/>',
            "contact, net force": '<contact body1="f" reduce="netforce" data="force torque pos"/>',
            "user": '<user dim="1"/>',
        }.items()
    }
    | {
        "tactile": _model(
            more='<body pos="-.5 0 .72"><freejoint/><geom type="box" size=".2 .1 .03"/>'
            '<geom name="skin" type="mesh" mesh="skin" contype="0" conaffinity="0"/></body>',
            rest='<asset><mesh name="skin" builtin="plate" params="5 4" scale=".2 .1 .03"/></asset>'
            '<sensor><tactile geom="skin" mesh="skin"/></sensor>',
        )
    },
}  # fmt: skip

_SHAPES = {
    "plane": 'type="plane" size="3 3 1"',
    "hfield": 'type="hfield" hfield="hills"',
    "sphere": 'type="sphere" size=".1"',
    "capsule": 'type="capsule" size=".1 .1"',
    "ellipsoid": 'type="ellipsoid" size=".1 .12 .1"',
    "cylinder": 'type="cylinder" size=".1 .1"',
    "box": 'type="box" size=".1 .1 .1"',
    "mesh": 'type="mesh" mesh="tent"',
}
_ASSETS = """<asset><hfield name="hills" nrow="2" ncol="2" size="1 1 .1 .1"/>
  <mesh name="tent" vertex="-.1 -.1 -.1 .1 -.1 -.1 0 .1 -.1 0 0 .1"/></asset>"""


def _pairs() -> Iterator[tuple[str, str]]:
    for one, two in itertools.combinations_with_replacement(_SHAPES, 2):
        if {one, two} <= {"plane", "hfield"}:
            continue
        first = f"<geom {_SHAPES[one]}/>"
        if one not in ("plane", "hfield"):
            first = f"<body><freejoint/>{first}</body>"
        yield (
            f"{one} with {two}",
            (
                f'<mujoco>{_ASSETS}<worldbody>{first}<body pos=".01 .02 .18" euler="3 4 5">'
                f"<freejoint/><geom {_SHAPES[two]}/></body></worldbody></mujoco>"
            ),
        )


FEATURES: dict[str, dict[str, str]] = {**_FEATURES, "contact": dict(_pairs())}
