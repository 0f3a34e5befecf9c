"""The machine that code is generated for: vector width, features, LLVM's target machine."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import llvmlite.binding as llvm


@dataclass(frozen=True)
class Target:
    """What the emitter needs to know of a host."""

    cpu: str
    features: str
    lanes: int  # float32 lanes of the widest vector register
    masks: bool  # has mask registers (AVX-512)
    fma: bool
    triple: str


@functools.cache
def host() -> Target:
    """The machine we run on."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.get_default_triple()
    features = llvm.get_host_cpu_features()
    masks = all(features.get(f, False) for f in ("avx512f", "avx512vl", "avx512dq", "avx512bw"))
    arm = triple.startswith(("aarch64", "arm64"))
    lanes = 16 if masks else 8 if features.get("avx2", False) else 4
    text = features.flatten()
    if masks:  # full-width registers, whatever this CPU's tuning prefers
        text += ",-prefer-256-bit"
    fma = masks or arm or features.get("fma", False)
    return Target(llvm.get_host_cpu_name(), text, lanes, masks, bool(fma), triple)


def machine(target: Target) -> llvm.TargetMachine:
    """LLVM's code generator for a target."""
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="default", jit=True
    )
