"""From LLVM IR to object code, and from object code to a function that can be called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm

from alloy.lanes.target import Target, machine

DRIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def assemble(target: Target, modules: list[str], tick: Callable[[int], None]) -> list[bytes]:
    """Object code of each module; `tick(k)` is called after the k-th."""
    tm = machine(target)
    out = []
    for k, text in enumerate(modules, 1):
        module = llvm.parse_assembly(f'target triple = "{target.triple}"\n' + text)
        module.data_layout = str(tm.target_data)
        module.verify()
        out.append(tm.emit_object(module))
        tick(k)
    return out


class Code:
    """Linked object code; keeps it in memory as long as `drive` is in use."""

    def __init__(self, target: Target, objects: list[bytes]) -> None:
        """Link the objects and find the driver."""
        empty = llvm.parse_assembly("")
        self.engine = llvm.create_mcjit_compiler(empty, machine(target))
        for data in objects:
            self.engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        self.engine.finalize_object()
        address = self.engine.get_function_address("drive")
        if not address:
            raise ValueError("object code without its driver")
        self.drive = DRIVE(address)  # ctypes releases the GIL during the call
