"""The exported header of C as a shared library, which Python calls."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from equiflock.runtime.checks import InputError

# The functions of a header are `static inline` and have its name in theirs; these have names that are always the same.
WRAPPER = """
#include "{header}"
size_t agent_size(void) {{ return sizeof({name}_agent); }}
int agent_dimensions(void) {{ return {NAME}_D; }}
int agent_message_size(void) {{ return {NAME}_MESSAGE; }}
uint32_t agent_step({name}_agent *agent) {{ return agent->step; }}
void agent_set_step({name}_agent *agent, uint32_t step) {{ agent->step = step; }}
void agent_begins({name}_agent *agent, uint32_t number, uint32_t group) {{ {name}_init(agent, number, (uint8_t)group); }}
void agent_says({name}_agent *agent, const float *r, const float *v, uint8_t *said) {{ {name}_begin(agent, r, v, said); }}
int agent_hears({name}_agent *agent, const uint8_t *message, size_t size) {{ return {name}_hear(agent, message, size); }}
void agent_acts({name}_agent *agent, float *acceleration) {{ {name}_end(agent, acceleration); }}
"""
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC")


def compile_header(header: Path, neighbours: int) -> Path:
    """Compile an exported header into a shared library beside it.

    Args:
        header: the file, whose name is that of its functions.
        neighbours: how many others an agent may hear at once.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise InputError("agents in C need a compiler, and neither gcc nor cc is here: install gcc, or fly --agent numpy")
    name, library = header.stem, header.with_suffix(".so")
    source = header.with_name(f"{name}_library.c")
    source.write_text(WRAPPER.format(header=header.name, name=name, NAME=name.upper()))
    room = f"-D{name.upper()}_NEIGHBOURS={neighbours}"
    command = [compiler, *FLAGS, room, "-o", str(library), str(source), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InputError(f"{compiler} cannot compile {header.name}: {(done.stderr.splitlines() or ['no reason given'])[0]}")
    return library
