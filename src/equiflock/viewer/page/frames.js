/** Frames as the server sends them; their layout stands in frames.py. */

const KIND = 3;
const HEADER_BYTES = 24;
const PANEL_BYTES = 72;

/**
 * Read a frame. Its arrays are views of the buffer: nothing is copied.
 * @param {ArrayBuffer} buffer
 */
export function readFrame(buffer) {
  const data = new DataView(buffer);
  if (data.getUint32(0, true) !== KIND) throw new Error("the server speaks another version: load the page again");
  const frame = { step: data.getFloat64(8, true), time: data.getFloat64(16, true), panels: [] };
  let at = HEADER_BYTES;
  /** The next part of the buffer; every part begins at a multiple of 8 bytes. */
  const take = (Kind, length) => {
    const part = new Kind(buffer, at, length);
    at += Math.ceil(part.byteLength / 8) * 8;
    return part;
  };
  for (let count = data.getUint32(4, true); count > 0; count--) {
    const [agents, edges, lost, disks, ended] = [0, 4, 8, 12, 16].map((offset) => data.getUint32(at + offset, true));
    const numbers = [24, 32, 40, 48, 56, 64].map((offset) => data.getFloat64(at + offset, true));
    at += PANEL_BYTES;
    frame.panels.push({
      agents,
      /** Whether the flight has ended: agents stand still, their velocities are what they were. */
      still: ended === 1,
      origin: numbers.slice(0, 2),
      /** Velocity variance, components, minimum separation, mean acceleration norm. */
      numbers: numbers.slice(2),
      positions: take(Float32Array, 2 * agents),
      velocities: take(Float32Array, 2 * agents),
      accelerations: take(Float32Array, 2 * agents),
      disks: take(Float32Array, 3 * disks),
      /** Receiver and sender of each message that is used now. */
      edges: take(Uint32Array, 2 * edges),
      /** The same of those that would be used if all messages arrived. */
      lost: take(Uint32Array, 2 * lost),
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
/** Conditions of agents, as failures are called; those that work have 0. */
export const FAILURES = ["silent", "stopped", "drifting"];

/** How many agents of a panel are part of the flock. */
export function flockSize(panel) {
  let count = 0;
  for (const role of panel.roles) count += role !== OBSTACLE;
  return count;
}

/** How many agents of a panel have failed, by how they did, in the order of FAILURES. */
export function failedAgents({ conditions }) {
  const counts = FAILURES.map(() => 0);
  for (const condition of conditions) if (condition) counts[condition - 1]++;
  return counts;
}

/** The numbers of the groups that agents of a panel are in, the smallest first. */
export function groupsOf({ roles, groups }) {
  const found = new Set();
  roles.forEach((role, i) => role !== OBSTACLE && found.add(groups[i]));
  return [...found].sort((a, b) => a - b);
}

/** The agent of the flock nearest to a place, as it is drawn some time after the frame, and how far it is away. */
export function nearestAgent({ origin, positions, velocities, accelerations, roles, still }, [x, y], ahead) {
  const time = still ? 0 : ahead;
  const at = (k) => positions[k] + (velocities[k] + (accelerations[k] * time) / 2) * time;
  let nearest = { number: -1, distance: Infinity };
  roles.forEach((role, i) => {
    if (role === OBSTACLE) return;
    const distance = Math.hypot(origin[0] + at(2 * i) - x, origin[1] + at(2 * i + 1) - y);
    if (distance < nearest.distance) nearest = { number: i, distance };
  });
  return nearest;
}

/** The mean velocity of a panel's leaders, or null if nobody leads. */
export function leaderVelocity(panel) {
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
