"""A controller on robots: one agent's controller, swarms of processes, and what an agent uses of what it heard."""
