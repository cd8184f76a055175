"""The causal past of an agent: all states that its acceleration may depend on.

At step n agent i receives messages with the senders' states and their observations of the previous step. So the state
of j at step n has reached i if i receives from j at n, the state of k at n - 1 if j received from k at n - 1, and so on
for K hops. With a delay or with receivers that reuse old messages, a message used at step n may be `memory` steps old.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int64

Edges = Int64[np.ndarray, "edges 2"]
"""Messages used at a step, as rows (receiver, sender)."""


def compute_causal_past(
    agent: int, edges: Sequence[Edges], agents: int, hops: int, memory: int
) -> Bool[np.ndarray, "T N"]:
    """Return, for each step and agent, whether that state can affect any acceleration of `agent` during the flight.

    True also for all of the agent's own states, and for states that decide whose messages are in range.

    Args:
        agent: number of the agent.
        edges: messages used at every step of the flight.
        agents: N.
        hops: K.
        memory: largest age in steps of a message that is used.
    """
    steps = len(edges)
    # depth[n, j]: number of hops of agent j's observations at step n that reach the agent.
    depth = np.zeros((steps, agents), np.int64)
    depth[:, agent] = hops
    reached = np.zeros((steps, agents), bool)
    for n in reversed(range(steps)):
        relevant = depth[n] > 0
        reached[n] |= relevant
        receivers, senders = edges[n][relevant[edges[n][:, 0]]].T
        for m in range(max(n - memory, 0), n + 1):
            reached[m, senders] = True
            # Receivers must not move either at step m: their positions decide whose messages are in range.
            reached[m] |= relevant
            if m > 0:
                np.maximum.at(depth[m - 1], senders, depth[n, receivers] - 1)
    return reached
