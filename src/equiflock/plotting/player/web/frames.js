/** Parses the server's binary frames; frames.py documents their layout. */

const FORMAT_VERSION = 6;
const HEADER_BYTES = 24;
const PANEL_BYTES = 120;
const MAX_SHORT_AGENTS = 65535; // agents that 16 bits can index

/**
 * Parse a frame. Its arrays are views of the buffer, not copies; positions and disks are relative to the panel's
 * origin.
 * @param {ArrayBuffer} buffer
 * @returns {{step: number, time: number, panels: object[]}} time in simulated seconds
 * @throws {Error} if the format version is another
 */
export function readFrame(buffer) {
  const data = new DataView(buffer);
  if (data.getUint32(0, true) !== FORMAT_VERSION)
    throw new Error("The server sends another frame format: reload the page.");
  const frame = { step: data.getFloat64(8, true), time: data.getFloat64(16, true), panels: [] };
  let at = HEADER_BYTES;
  /** Return the next array; each starts at a multiple of 8 bytes. */
  const take = (Kind, length) => {
    const array = new Kind(buffer, at, length);
    at += Math.ceil(array.byteLength / 8) * 8;
    return array;
  };
  for (let count = data.getUint32(4, true); count > 0; count--) {
    const [agents, disks, ended, marks, ...counts] = Array.from({ length: 10 }, (_, k) =>
      data.getUint32(at + 4 * k, true),
    );
    const [edgeCounts, outcome, tooMany] = [counts.slice(0, 4), counts[4], counts[5]];
    const numbers = Array.from({ length: 10 }, (_, k) => data.getFloat64(at + 40 + 8 * k, true));
    const Indices = agents > MAX_SHORT_AGENTS ? Uint32Array : Uint16Array;
    at += PANEL_BYTES;
    frame.panels.push({
      agents,
      /** Whether the flight has ended: agents stand still, though their last velocities are kept. */
      hasEnded: ended === 1,
      origin: numbers.slice(0, 2),
      /** Velocity variance, components, minimum separation; mean, RMS and peak acceleration. */
      metricValues: numbers.slice(2, 8),
      /** The scenario's number of success; NaN for none. */
      success: numbers[8],
      /** Code of the outcome that the scenario's ending has reported, 0 for none, and its time in seconds. */
      outcome,
      outcomeTime: numbers[9],
      positions: take(Float32Array, 2 * agents),
      velocities: take(Float32Array, 2 * agents),
      accelerations: take(Float32Array, 2 * agents),
      disks: take(Float32Array, 3 * disks),
      /** Four numbers of each mark, and four codes: kind, shape, whether it moves, and 0; see marks.js. */
      marks: take(Float32Array, 4 * marks),
      markCodes: take(Uint8Array, 4 * marks),
      /** Whether there are too many edges to list any. */
      hidesEdges: tooMany === 1,
      /**
       * Messages in use, then those that would be in use had they arrived, each as the indices of receiver and sender:
       * `pairs` in both directions, or from a sender that cannot receive, and `singles` in one direction only.
       */
      edges: { pairs: take(Indices, 2 * edgeCounts[0]), singles: take(Indices, 2 * edgeCounts[1]) },
      lostEdges: { pairs: take(Indices, 2 * edgeCounts[2]), singles: take(Indices, 2 * edgeCounts[3]) },
      roles: take(Uint8Array, agents),
      groups: take(Uint8Array, agents),
      conditions: take(Uint8Array, agents),
    });
  }
  return frame;
}

/** Roles of agents. */
export const FOLLOWER = 0;
export const LEADER = 1;
export const OBSTACLE = 2;
/** Kinds of failure: condition k + 1 is FAILURES[k], condition 0 is a working agent. */
export const FAILURES = ["silent", "stopped", "drifting"];

/** Count the agents of a panel, failed ones included, without obstacle agents. */
export function countAgents(panel) {
  let count = 0;
  for (const role of panel.roles) count += role !== OBSTACLE;
  return count;
}

/** Return the number of failed agents of a panel for each kind, in the order of FAILURES. */
export function countFailed({ conditions }) {
  const counts = FAILURES.map(() => 0);
  for (const condition of conditions) if (condition) counts[condition - 1]++;
  return counts;
}

/** Return the different group numbers of a panel's agents, without obstacle agents, in ascending order. */
export function listGroups({ roles, groups }) {
  const present = new Set();
  roles.forEach((role, i) => role !== OBSTACLE && present.add(groups[i]));
  return [...present].sort((a, b) => a - b);
}

/** Return the world coordinates of agent i `ahead` simulated seconds after the frame. */
export function placeAgent({ origin, positions, velocities, accelerations }, i, ahead) {
  const at = (k) => positions[k] + (velocities[k] + (accelerations[k] * ahead) / 2) * ahead;
  return [origin[0] + at(2 * i), origin[1] + at(2 * i + 1)];
}

/**
 * Return {index, distance} of the agent nearest to a point (world coordinates) `ahead` simulated seconds after the
 * frame. Obstacle agents are ignored; without others the index is -1. If the flight has ended, `ahead` counts as 0.
 */
export function findNearestAgent({ origin, positions, velocities, accelerations, roles, hasEnded }, [x, y], ahead) {
  const time = hasEnded ? 0 : ahead;
  const at = (k) => positions[k] + (velocities[k] + (accelerations[k] * time) / 2) * time;
  let nearest = { index: -1, distance: Infinity };
  roles.forEach((role, i) => {
    if (role === OBSTACLE) return;
    const distance = Math.hypot(origin[0] + at(2 * i) - x, origin[1] + at(2 * i + 1) - y);
    if (distance < nearest.distance) nearest = { index: i, distance };
  });
  return nearest;
}

/** Return the mean velocity of a panel's leaders, or null if there are none. */
export function computeLeaderVelocity(panel) {
  let count = 0,
    x = 0,
    y = 0;
  panel.roles.forEach((role, i) => {
    if (role !== LEADER) return;
    count += 1;
    x += panel.velocities[2 * i];
    y += panel.velocities[2 * i + 1];
  });
  return count ? [x / count, y / count] : null;
}
