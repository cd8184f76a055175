"""Step time of one exported agent with ten neighbours in C, NumPy, onnxruntime and torch, in microseconds.

C and NumPy make the full step: write the message, receive those of ten neighbours, and compute the acceleration.
onnxruntime and torch are given the observations and only compute the acceleration.

python benchmarks/export.py
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import equiflock as ef
from equiflock._runtime.threads import use_one_thread
from equiflock.deployment.export.c_header import count_agent_bytes
from equiflock.deployment.export.program import read_program
from equiflock.deployment.exported_agents import COMPILER_FLAGS, import_agent_class
from equiflock.deployment.microcontroller import Recording, format_recording_as_c
from equiflock.evaluation.benchmark import measure_best_time
from firmware import LIMITS, make_recording

NAMES = "etdagnn", "tdagnn", "tanner-dynamic"
ROUNDS = 2_000
PROGRAM = """#include <stdio.h>
#include <time.h>
#include "agent.h"
#include "recording.h"
int main(void)
{
    static agent_agent agent;
    static uint8_t message[AGENT_MESSAGE];
    float acceleration[AGENT_D], kept = 0.0f;
    double best = 1e9;
    int tries, round, step, n;
    for (tries = 0; tries < 9; tries++) {
        clock_t began = clock();
        double took;
        for (round = 0; round < ROUNDS; round++) {
            const uint8_t *received = recorded_messages;
#ifdef AGENT_MAX_ACCELERATION
            agent_init(&agent, RECORDED_NUMBER, RECORDED_GROUP, RECORDED_PERIOD);
#else
            agent_init(&agent, RECORDED_NUMBER, RECORDED_GROUP);
#endif
            for (step = 0; step < RECORDED_STEPS; step++) {
                agent_begin(&agent, recorded_positions[step], recorded_velocities[step], message);
                for (n = 0; n < recorded_counts[step]; n++, received += AGENT_MESSAGE)
                    agent_receive(&agent, received, AGENT_MESSAGE);
                agent_end(&agent, acceleration);
                kept += acceleration[0];
            }
        }
        took = (double)(clock() - began) / CLOCKS_PER_SEC / (ROUNDS * RECORDED_STEPS);
        best = took < best ? took : best;
    }
    printf("%.9e %g\\n", best, (double)kept);
    return 0;
}
"""
SIZES = """#include "agent.h"
extern agent_agent agent;
agent_agent agent;
#ifdef AGENT_MAX_ACCELERATION
void init(void) { agent_init(&agent, 1u, 0u, 0.01f); }
#else
void init(void) { agent_init(&agent, 1u, 0u); }
#endif
void begin(const float *r, const float *v, uint8_t *message) { agent_begin(&agent, r, v, message); }
int receive(const uint8_t *message, size_t length) { return agent_receive(&agent, message, length); }
int end(float *acceleration) { return agent_end(&agent, acceleration); }
"""


def measure_c(controller: Any, recording: Recording, folder: Path) -> float:
    """Return seconds per step of the exported C, in a separate program."""
    ef.export(controller, folder / "agent.h")
    (folder / "recording.h").write_text(format_recording_as_c(recording))
    command = ["cc", *COMPILER_FLAGS, f"-DROUNDS={ROUNDS}", "-I", ".", "-x", "c", "-", "-o", "program", "-lm"]
    subprocess.run(command, cwd=folder, input=PROGRAM, text=True, check=True)
    done = subprocess.run([folder / "program"], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])


def measure_flash(folder: Path) -> int:
    """Return the bytes of code and constants of the header on this machine, without libm, from an object file."""
    command = ["cc", "-std=c99", "-Os", "-fno-asynchronous-unwind-tables", "-I", ".", "-c", "-x", "c", "-"]
    subprocess.run([*command, "-o", "size.o"], cwd=folder, input=SIZES, text=True, check=True)
    text = subprocess.run(["size", folder / "size.o"], capture_output=True, text=True, check=True).stdout
    return int(text.splitlines()[1].split()[0])


def measure_numpy(controller: Any, recording: Recording, folder: Path) -> float:
    """Return seconds per step of the NumPy export."""
    ef.export(controller, folder / "agent.npz")
    make = import_agent_class(folder / "agent.py")
    period = {} if recording.states is None else {"period": recording.time_step}

    def fly() -> None:
        agent = make(recording.number, **period)
        for step, messages in enumerate(recording.messages):
            agent.begin(recording.positions[step], recording.velocities[step])
            for message in messages:
                agent.receive(message)
            agent.end()

    return measure_best_time(fly, repeats=3) / len(recording.messages)


def measure_graph(controller: Any, observations: Any, folder: Path) -> float:
    """Return microseconds per evaluation of the ONNX graph."""
    ef.export(controller, folder / "agent.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "agent.onnx", options)
    return measure_best_time(lambda: session.run(None, {"observations": observations}), repeats=40) * 1e6


def main() -> None:
    print(
        f"{'µs per step':16}{'neighbours':>11}{'C':>8}{'NumPy':>8}{'onnxruntime':>13}{'torch':>8}{'flash':>8}{'RAM':>8}"
    )
    controllers: dict[str, Any] = {name: ef.load(name) for name in NAMES}
    controllers["etdagnn, limits"] = ef.Safe("etdagnn", **LIMITS)
    for name, controller in controllers.items():
        recording = make_recording(controller)
        observations = np.ascontiguousarray(recording.observations[:1, None])
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            ours = measure_c(controller, recording, folder) * 1e6
            plain = measure_numpy(controller, recording, folder) * 1e6
            graph = "-" if recording.states is not None else f"{measure_graph(controller, observations, folder):.1f}"
            size = measure_flash(folder)
        theirs = "-"
        if isinstance(controller, torch.nn.Module):
            tensor = torch.from_numpy(observations)
            with torch.inference_mode():
                theirs = f"{measure_best_time(lambda: controller(tensor), repeats=40) * 1e6:.1f}"  # noqa: B023
        neighbours = np.mean([len(each) for each in recording.messages])
        memory = count_agent_bytes(read_program(controller))
        times = f"{ours:8.2f}{plain:8.0f}{graph:>13}{theirs:>8}"
        print(f"{name:16}{neighbours:11.1f}{times}{size:8,}{memory:8,}", flush=True)


if __name__ == "__main__":
    with use_one_thread():
        main()
