"""What an agent received, itself and by way of those it heard: all that its acceleration may depend on.

At step n agent i hears messages, each with the sender's state and with what the sender knew a step before. So the state
of j at step n has reached i if i hears j then, that of k at step n - 1 if j heard k then, and so on for K hops. By a
radio that delays, or whose receivers remember, a message that is used at n may be `memory` steps old.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int64

Edges = Int64[np.ndarray, "edges 2"]
"""Who uses a message of whom at a step, as rows (receiver, sender)."""


def compute_causal_past(
    agent: int, edges: Sequence[Edges], agents: int, hops: int, memory: int
) -> Bool[np.ndarray, "T N"]:
    """Whose state at which step has reached an agent by the end of a flight, its own included.

    Args:
        agent: its number.
        edges: of every step of the flight.
        agents: N.
        hops: K, over how many hops what was heard is passed on.
        memory: how many steps old a message may be when it is used.
    """
    steps = len(edges)
    # depth[n, j]: over how many more hops what agent j knows at step n is passed on until it reaches the agent.
    depth = np.zeros((steps, agents), np.int64)
    depth[:, agent] = hops
    reached = np.zeros((steps, agents), bool)
    for n in reversed(range(steps)):
        listens = depth[n] > 0
        reached[n] |= listens
        receivers, senders = edges[n][listens[edges[n][:, 0]]].T
        for m in range(max(n - memory, 0), n + 1):
            reached[m, senders] = True
            # Whoever was within reach of a listener when messages were sent stays where it was: a loss is no distance.
            reached[m] |= listens
            if m > 0:
                np.maximum.at(depth[m - 1], senders, depth[n, receivers] - 1)
    return reached
