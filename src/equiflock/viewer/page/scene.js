/**
 * Draws flocks: one canvas, one WebGL2 context, one or two panels.
 *
 * No draw is instanced, and only edges have a vertex buffer: shaders count vertices and fetch agents from a texture. A
 * software renderer makes every instance a draw of its own, and then takes five times as long for 10,000 darts.
 */

/**
 * The colours of each theme, "#rrggbb" or "#rrggbbaa". Agents are coloured by heading: oklch(lightness chroma heading),
 * as in CSS, the hue being the angle from the x axis. `brush`, `obstacle` and `lead` are also the kinds of highlights.
 */
export const PALETTES = {
  dark: {
    background: "#0b0f17",
    hairline: "#2a3344",
    grid: "#9fb4d816",
    edge: "#a9bfe638",
    ink: "#ffffff",
    disk: "#7c5cf02e",
    obstacle: "#a78bfa",
    brush: "#ff6b6b",
    lead: "#4ade80",
    lightness: 0.8,
    chroma: 0.14,
    trail: 0.5, // opacity of its young end
  },
  light: {
    background: "#fbfaf7",
    hairline: "#d8d4ca",
    grid: "#3b332012",
    edge: "#3a425533",
    ink: "#14171f",
    disk: "#7c5cf024",
    obstacle: "#7c4fe0",
    brush: "#d9363e",
    lead: "#15924a",
    lightness: 0.6,
    chroma: 0.15,
    trail: 0.36,
  },
};

const SHORTEST = 5; // darts, in css pixels
const LONGEST = 26;
const GRID = 40; // css pixels between lines, at least
const TRAIL = 1.44; // simulated seconds that a trail lasts
const TRAIL_WORK = 16000; // segments drawn, unless that leaves fewer than 4 an agent
const ROW = 1024; // texels in a row of a texture of agents
const DART = 6; // vertices of a dart
const RING = 6 * 64; // and of a ring, two triangles a segment
const BY_HEADING = [0, 0, 0, 0]; // instead of a colour

const HEAD = `#version 300 es
precision highp float;
precision highp sampler2D;
uniform sampler2D agents;  // two texels each: x, y, vx, vy and ax, ay, j, 0
uniform vec2 origin;  // of their positions, seen from the camera
uniform vec2 viewport;  // css pixels, like all lengths on the screen
uniform float scale, ahead, start, lightness, chroma;
uniform vec4 paint;
out vec4 colour;

vec4 clip(vec2 pixels) { return vec4(2.0 * pixels / viewport, 0.0, 1.0); }

vec4 texel(sampler2D of, int k) { return texelFetch(of, ivec2(k % ${ROW}, k / ${ROW}), 0); }

// Where agent i is in pixels, and its velocity: exact, since an acceleration is held during a step.
vec4 agent(int i) {
  vec4 rv = texel(agents, 2 * i);
  vec2 a = texel(agents, 2 * i + 1).xy;
  return vec4((rv.xy + (rv.zw + 0.5 * a * ahead) * ahead + origin) * scale, rv.zw + a * ahead);
}

// The k-th agent of the role that begins at start: texel pair k tells that agent j is the k-th in the order of roles.
vec4 agentOfRole(int k) { return agent(int(texel(agents, 2 * (int(start) + k) + 1).z)); }

// OKLCH to sRGB, with the hue as a unit vector: no angle is ever computed.
vec3 oklch(float lightness, float chroma, vec2 hue) {
  vec2 ab = chroma * hue;
  vec3 lms = lightness + mat2x3(0.3963378, -0.1055613, -0.0894842, 0.2158038, -0.0638542, -1.2914855) * ab;
  mat3 toRgb = mat3(4.0767417, -1.268438, -0.0041961, -3.3077116, 2.6097574, -0.7034186,
                    0.2309699, -0.3413194, 1.7076147);
  vec3 x = clamp(toRgb * (lms * lms * lms), 0.0, 1.0);
  vec3 root = sqrt(x);
  vec3 fourth = sqrt(root);
  // The transfer function of sRGB within 0.007, without the powers that would take most of the time of a trail.
  return 0.6620027 * root + 0.6841221 * fourth - 0.3235836 * sqrt(fourth) - 0.0225411 * x;
}

// Vertex k of a ring between an inner and an outer radius; a disc is a ring around nothing.
vec2 ring(int k, vec2 radii) {
  const vec2 CORNERS[6] = vec2[](vec2(0, 0), vec2(0, 1), vec2(1, 1), vec2(0, 0), vec2(1, 1), vec2(1, 0));
  vec2 corner = CORNERS[k % 6];
  float angle = 6.2831853 * (float(k / 6) + corner.x) / ${RING / 6}.0;
  return mix(radii.x, radii.y, corner.y) * vec2(cos(angle), sin(angle));
}
`;

const SHADERS = {
  // Vertical lines, then horizontal ones. Every other line fades out as the view recedes, so that none pops up or away.
  grid: `
uniform vec2 first, parity;
uniform float columns, spacing, nearness;
void main() {
  float k = float(gl_VertexID / 2);
  bool column = k < columns;
  if (!column) k -= columns;
  vec2 across = (first + k * spacing) * scale;
  vec2 along = viewport * (float(gl_VertexID % 2) - 0.5);
  gl_Position = clip(column ? vec2(across.x, along.y) : vec2(along.x, across.y));
  bool odd = mod(k + (column ? parity.x : parity.y), 2.0) == 1.0;
  colour = vec4(paint.rgb, paint.a * (odd ? nearness : 1.0));
}`,

  circles: `
uniform vec2 centre, radii;
void main() {
  gl_Position = clip(centre * scale + ring(gl_VertexID, radii));
  colour = paint;
}`,

  edges: `
layout(location = 0) in uint index;
void main() {
  gl_Position = clip(agent(int(index)).xy);
  colour = paint;
}`,

  // The path of every agent from one slot to the next, fading with age.
  trails: `
uniform sampler2D before;
uniform vec2 originBefore, fade;
uniform float opacity;
void main() {
  int i = gl_VertexID / 2;
  vec2 from = (texel(before, 2 * i).xy + originBefore) * scale;
  vec2 to = agent(i).xy;
  bool young = gl_VertexID % 2 == 1;
  gl_Position = clip(young ? to : from);
  float way = distance(from, to);
  float strength = young ? fade.y : fade.x;
  colour = vec4(oklch(lightness, chroma, way > 0.0 ? (to - from) / way : vec2(0.0)), opacity * strength * strength);
}`,

  rings: `
uniform vec2 radii;
void main() {
  gl_Position = clip(agentOfRole(gl_VertexID / ${RING}).xy + ring(gl_VertexID % ${RING}, radii));
  colour = paint;
}`,

  // Folded sheets: nose, wing and notch of the left half, then of the right half, which lies in the shade.
  darts: `
uniform float size, outline;
const vec2 CORNERS[3] = vec2[](vec2(0.56, 0.0), vec2(-0.44, 0.32), vec2(-0.24, 0.0));
const vec2 OUTWARDS[3] = vec2[](vec2(2.4, 0.0), vec2(-1.0, 1.3), vec2(-1.0, 0.0));
void main() {
  int k = gl_VertexID % ${DART};
  vec4 self = agentOfRole(gl_VertexID / ${DART});
  float speed = length(self.zw);
  vec2 heading = speed > 0.0 ? self.zw / speed : vec2(1.0, 0.0);
  float side = k < 3 ? 1.0 : -1.0;
  vec2 point = (CORNERS[k % 3] * size + OUTWARDS[k % 3] * outline) * vec2(1.0, side);
  gl_Position = clip(self.xy + mat2(heading, -heading.y, heading.x) * point);
  // Without paint the colour tells the heading. A slow agent has hardly a heading, so it has hardly a hue.
  float vividness = chroma * smoothstep(0.0, 0.15, speed);
  colour = paint.a > 0.0 ? paint : vec4(oklch(lightness + 0.04 * side, vividness, heading), 1.0);
}`,
};

const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 colour;
out vec4 fragment;
void main() { fragment = colour; }`;

function rgba(hex) {
  return hex.slice(1).padEnd(8, "f").match(/../g).map((byte) => parseInt(byte, 16) / 255);
}

/** A function that uses the program with uniforms given by name, textures among them. */
function buildProgram(gl, vertexSource) {
  const program = gl.createProgram();
  for (const [type, source] of [[gl.VERTEX_SHADER, HEAD + vertexSource], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) {
    const logs = gl.getAttachedShaders(program).map((shader) => gl.getShaderInfoLog(shader));
    throw new Error(`A shader is wrong: ${logs.join(" ")}`);
  }
  const locations = {};
  for (let i = 0; i < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); i++) {
    const { name } = gl.getActiveUniform(program, i);
    locations[name] = gl.getUniformLocation(program, name);
  }
  return (uniforms) => {
    gl.useProgram(program);
    let unit = 0;
    for (const [name, value] of Object.entries(uniforms)) {
      if (value instanceof WebGLTexture) {
        gl.activeTexture(gl.TEXTURE0 + unit);
        gl.bindTexture(gl.TEXTURE_2D, value);
        gl.uniform1i(locations[name], unit++);
      } else if (typeof value === "number") gl.uniform1f(locations[name], value);
      else if (value.length === 2) gl.uniform2fv(locations[name], value);
      else gl.uniform4fv(locations[name], value);
    }
  };
}

/** What the GPU holds of one panel. A frame that gives way to a newer one stays behind as a slot of the trails. */
class Flock {
  now = null; // {agents: texture, origin, time, count}
  past = []; // the same, oldest first
  roles = []; // {start, count} of followers, leaders and obstacle agents in the order of roles
  disks = []; // [x, y, radius] in world coordinates
  edges; // {buffer, count}
  #gl;

  constructor(gl) {
    this.#gl = gl;
    this.edges = { buffer: gl.createBuffer(), count: 0 };
  }

  /** In how many pieces a trail is drawn: fewer of many agents, which are seen from further away. */
  get slots() {
    return Math.min(Math.max(Math.floor(TRAIL_WORK / this.now.count), 4), 24);
  }

  upload(panel, time) {
    const gl = this.#gl;
    const count = panel.roles.length;
    if (this.now && (this.now.count !== count || time < this.now.time)) this.forget();
    this.now = { agents: this.#spare() ?? this.#texture(), origin: panel.origin, time, count };
    gl.bindTexture(gl.TEXTURE_2D, this.now.agents);
    const texels = this.#pack(panel);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA32F, ROW, texels.length / ROW / 4, 0, gl.RGBA, gl.FLOAT, texels);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.edges.buffer);
    gl.bufferData(gl.ARRAY_BUFFER, panel.edges, gl.DYNAMIC_DRAW);
    this.edges.count = panel.edges.length;
    const [x, y] = panel.origin;
    this.disks = Array.from({ length: panel.disks.length / 3 }, (_, k) => {
      const [dx, dy, radius] = panel.disks.subarray(3 * k);
      return [x + dx, y + dy, radius];
    });
  }

  forget() {
    for (const slot of this.past) this.#gl.deleteTexture(slot.agents);
    this.#gl.deleteTexture(this.now?.agents ?? null);
    this.past = [];
    this.now = null;
  }

  /** The texels that the shaders fetch. */
  #pack({ positions, velocities, accelerations, roles }) {
    const texels = new Float32Array(4 * ROW * Math.max(1, Math.ceil((2 * roles.length) / ROW)));
    const tally = [0, 0, 0];
    for (const role of roles) tally[role]++;
    const next = [0, tally[0], tally[0] + tally[1]];
    this.roles = tally.map((count, role) => ({ start: next[role], count }));
    roles.forEach((role, i) => {
      for (let k = 0; k < 2; k++) {
        texels[8 * i + k] = positions[2 * i + k];
        texels[8 * i + 2 + k] = velocities[2 * i + k];
        texels[8 * i + 4 + k] = accelerations[2 * i + k];
      }
      texels[8 * next[role]++ + 6] = i;
    });
    return texels;
  }

  /** A texture to write to: the present frame's, unless that becomes a slot; then the oldest slot's, if it must go. */
  #spare() {
    if (!this.now) return undefined;
    const last = this.past.at(-1);
    if (last && this.now.time - last.time < TRAIL / this.slots - 1e-6) return this.now.agents; // times are rounded
    this.past.push(this.now);
    return this.past.length > this.slots ? this.past.shift().agents : undefined;
  }

  #texture() {
    const gl = this.#gl;
    const texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    return texture;
  }
}

export class Scene {
  #canvas;
  #gl;
  #theme;
  #palette; // the theme's, with colours as numbers
  #ratio = 1; // device pixels per css pixel
  #programs;
  #frame; // the one the GPU holds
  #flocks;

  /**
   * @param {HTMLCanvasElement} canvas
   * @throws {Error} if WebGL2 is missing
   */
  constructor(canvas) {
    this.#canvas = canvas;
    const options = { alpha: false, antialias: true, depth: false, preserveDrawingBuffer: true };
    this.#gl = canvas.getContext("webgl2", options);
    if (!this.#gl) throw new Error("This browser cannot draw flocks: WebGL2 is missing or switched off.");
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => this.#build());
    this.theme = "dark";
    this.#build();
    this.resize();
  }

  /** "dark" or "light". */
  get theme() {
    return this.#theme;
  }

  set theme(name) {
    this.#theme = name;
    const numbers = ([key, value]) => [key, typeof value === "string" ? rgba(value) : value];
    this.#palette = Object.fromEntries(Object.entries(PALETTES[name]).map(numbers));
  }

  /** Fit the drawing buffer to the canvas's css size; call it when that changes, then draw. */
  resize() {
    this.#ratio = Math.min(window.devicePixelRatio, 2);
    this.#canvas.width = Math.max(1, Math.round(this.#canvas.clientWidth * this.#ratio));
    this.#canvas.height = Math.max(1, Math.round(this.#canvas.clientHeight * this.#ratio));
  }

  /**
   * Where the panels are: side by side on a wide canvas, else stacked, a hairline apart.
   * @param {number} panels  how many there are
   * @returns {{x: number, y: number, width: number, height: number}[]} css pixels, y down from the canvas's top
   */
  viewports(panels) {
    const ratio = this.#ratio;
    const { width, height } = this.#canvas;
    const wide = width > height;
    const pitch = Math.ceil(((wide ? width : height) + 1) / panels); // in whole device pixels
    return Array.from({ length: panels }, (_, i) => ({
      x: (wide ? i * pitch : 0) / ratio,
      y: (wide ? 0 : i * pitch) / ratio,
      width: (wide ? Math.min(pitch - 1, width - i * pitch) : width) / ratio,
      height: (wide ? height : Math.min(pitch - 1, height - i * pitch)) / ratio,
    }));
  }

  /** Start the trails anew, as when another flight begins. */
  forgetTrails() {
    for (const flock of this.#flocks) flock.forget();
    this.#frame = null;
  }

  /**
   * Draw a frame. It is uploaded when it is first seen, so drawing it again with another `ahead` is cheap.
   * @param {{time: number, panels: object[]}} frame
   * @param {number} ahead  seconds since the frame's time
   * @param {import("./camera.js").Camera[]} cameras  one per panel
   * @param {{edges: boolean, trails: boolean, radius: number, highlight: ?object}} look
   *   radius: the grid's unit; highlight: {panel, x, y, radius, kind} in world coordinates
   */
  draw(frame, ahead, cameras, look) {
    const gl = this.#gl;
    if (gl.isContextLost()) return;
    if (frame !== this.#frame) {
      this.#flocks = frame.panels.map((_, i) => this.#flocks[i] ?? new Flock(gl));
      this.#flocks.forEach((flock, i) => flock.upload(frame.panels[i], frame.time));
      this.#frame = frame;
    }
    const clear = (colour, ...rectangle) => {
      gl.viewport(...rectangle);
      gl.scissor(...rectangle);
      gl.clearColor(...colour);
      gl.clear(gl.COLOR_BUFFER_BIT);
    };
    const { width, height } = this.#canvas;
    const rects = this.viewports(frame.panels.length);
    if (rects.length > 1) clear(this.#palette.hairline, 0, 0, width, height);
    rects.forEach((rect, i) => {
      const [x, y, w, h] = [rect.x, rect.y, rect.width, rect.height].map((css) => Math.round(css * this.#ratio));
      clear(this.#palette.background, x, height - y - h, w, h);
      this.#drawPanel(i, ahead, cameras[i], rect, look);
    });
  }

  #drawPanel(i, ahead, camera, rect, look) {
    const gl = this.#gl;
    const flock = this.#flocks[i];
    const palette = this.#palette;
    const programs = this.#programs;
    const { scale } = camera;
    const seen = ([x, y]) => [x - camera.x, y - camera.y]; // in float64, before the GPU rounds it
    const { lightness, chroma } = palette;
    const view = { viewport: [rect.width, rect.height], scale, lightness, chroma };
    const agents = { ...view, agents: flock.now.agents, origin: seen(flock.now.origin), ahead };
    const [followers, leaders, obstacles] = flock.roles;
    // 0.16 world units at 100 pixels a unit; seen from afar, darts shrink slower than the world does.
    const size = Math.min(Math.max(1.6 * Math.sqrt(scale), SHORTEST), LONGEST);

    const circle = ([x, y, radius], paint, inner = radius * scale - 1.5) => {
      programs.circles({ ...view, centre: seen([x, y]), radii: [inner, radius * scale], paint });
      gl.drawArrays(gl.TRIANGLES, 0, RING);
    };
    const rings = ({ start, count }, radii, paint) => {
      programs.rings({ ...agents, start, radii, paint });
      gl.drawArrays(gl.TRIANGLES, 0, RING * count);
    };
    const darts = ({ start, count }, length, outline, paint) => {
      programs.darts({ ...agents, start, size: length, outline, paint });
      gl.drawArrays(gl.TRIANGLES, 0, DART * count);
    };

    this.#drawGrid(view, camera, look.radius);
    for (const disk of flock.disks) {
      circle(disk, palette.disk, 0);
      circle(disk, palette.obstacle);
    }
    if (look.trails) this.#drawTrails(flock, { ...view, opacity: palette.trail }, ahead, seen);
    if (look.edges) this.#drawEdges(flock.edges, { ...agents, paint: palette.edge });
    rings(obstacles, [0, 1 + size / 8], palette.obstacle);
    darts(followers, size, 0, BY_HEADING);
    rings(leaders, [size + 4, size + 5.25], palette.ink);
    darts(leaders, 1.5 * size, 1.25, palette.ink);
    darts(leaders, 1.5 * size, 0, BY_HEADING);
    if (look.highlight?.panel === i) {
      const { x, y, radius, kind } = look.highlight;
      circle([x, y, radius], palette[kind]);
    }
  }

  /** Lines at multiples of R times a power of 2. */
  #drawGrid(view, camera, radius) {
    const gl = this.#gl;
    const spacing = radius * 2 ** Math.ceil(Math.log2(GRID / (radius * view.scale)));
    const [w, h] = view.viewport.map((pixels) => pixels / view.scale);
    const [i, j] = [Math.ceil((camera.x - w / 2) / spacing), Math.ceil((camera.y - h / 2) / spacing)];
    const [columns, rows] = [Math.ceil(w / spacing), Math.ceil(h / spacing)];
    const first = [i * spacing - camera.x, j * spacing - camera.y];
    const nearness = (spacing * view.scale) / GRID - 1;
    const paint = this.#palette.grid;
    this.#programs.grid({ ...view, first, parity: [i & 1, j & 1], columns, spacing, nearness, paint });
    gl.drawArrays(gl.LINES, 0, 2 * (columns + rows));
  }

  #drawEdges({ buffer, count }, uniforms) {
    const gl = this.#gl;
    this.#programs.edges(uniforms);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.vertexAttribIPointer(0, 1, gl.UNSIGNED_INT, 0, 0);
    gl.enableVertexAttribArray(0);
    gl.drawArrays(gl.LINES, 0, count);
    gl.disableVertexAttribArray(0);
  }

  /** One draw per slot: the way from there to the next slot, and from the last one to where the agents are now. */
  #drawTrails({ now, past }, uniforms, ahead, seen) {
    const present = { ...now, time: now.time + ahead };
    const fade = ({ time }) => Math.max(0, 1 - (present.time - time) / TRAIL);
    past.forEach((older, k) => {
      const newer = past[k + 1] ?? present;
      if (fade(newer) === 0) return;
      this.#programs.trails({
        ...uniforms,
        before: older.agents,
        agents: newer.agents,
        originBefore: seen(older.origin),
        origin: seen(newer.origin),
        ahead: newer === present ? ahead : 0,
        fade: [fade(older), fade(newer)],
      });
      this.#gl.drawArrays(this.#gl.LINES, 0, 2 * now.count);
    });
  }

  /** Everything that lives in the context, which may be lost and come back empty. */
  #build() {
    const gl = this.#gl;
    this.#frame = null;
    this.#flocks = [];
    const built = Object.entries(SHADERS).map(([name, source]) => [name, buildProgram(gl, source)]);
    this.#programs = Object.fromEntries(built);
    gl.enable(gl.SCISSOR_TEST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
  }
}
