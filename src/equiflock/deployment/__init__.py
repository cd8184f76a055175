"""Deployment to robots: export of one agent's controller, swarms of processes, and locality audits.

An agent is the controller of one robot: messages in, an acceleration and the next message out. `export/` writes it as
C, NumPy or ONNX; `exported_agents` and `package_agent` run it; `wire_format` has the bytes of messages;
`microcontroller` measures it on an emulated Cortex-M4F.

In a swarm every robot is a process (`robot`), which exchanges frames (`link_frames`) with the host only. The host has
the simulated environment (`swarm_host`), starts and ends the processes (`robot_processes`), runs the flight (`swarm`)
and compares it with the simulator (`swarm_results`). `audit` checks locality in the simulator, `swarm_audit` in a
swarm.
"""
