/**
 * Shader programs that draw agents, trails, edges, obstacles and the grid.
 *
 * No draw is instanced, and only edges have buffers: shaders compute vertices from their index and fetch agents
 * from a texture. Software renderers draw each instance separately, which takes five times as long for 10,000 darts.
 */

export const TEXTURE_WIDTH = 1024; // texels per row of the agent texture
export const DART_VERTICES = 6; // vertices of a dart
export const RING_VERTICES = 6 * 64; // vertices of a ring: two triangles per segment
export const MARK_VERTICES = 24; // vertices of a point's ring: two ends of each line
export const BAND_VERTICES = 6; // vertices of a segment: two triangles
export const GROUP_COLOUR_COUNT = 8; // number of group colours
export const FAILED_COLOUR = GROUP_COLOUR_COUNT + 1; // index of the colour of failed agents, after the group colours

const VERTEX_PRELUDE = `#version 300 es
precision highp float;
precision highp sampler2D;
uniform sampler2D agents;  // two texels each: x, y, vx, vy and ax, ay, j, colour index (0: by heading)
uniform vec2 origin;  // of the agents' positions, relative to the camera
uniform vec2 viewport;  // css pixels, as all lengths on the screen
uniform float scale, ahead, start, lightness, chroma;
uniform vec4 paint;
uniform vec4 groups[${FAILED_COLOUR}];  // colours of groups, then of failed agents
out vec4 colour;

vec4 clip(vec2 pixels) { return vec4(2.0 * pixels / viewport, 0.0, 1.0); }

vec4 texel(sampler2D of, int k) { return texelFetch(of, ivec2(k % ${TEXTURE_WIDTH}, k / ${TEXTURE_WIDTH}), 0); }

// Position (pixels) and velocity of agent i: r + v t + a t^2 / 2, with the constant acceleration that reproduces the
// motion of its body to the next frame.
vec4 agent(int i) {
  vec4 rv = texel(agents, 2 * i);
  vec2 a = texel(agents, 2 * i + 1).xy;
  return vec4((rv.xy + (rv.zw + 0.5 * a * ahead) * ahead + origin) * scale, rv.zw + a * ahead);
}

// Index of the k-th agent of the kind that starts at start: entry j of texel pair k is the k-th agent in the order of
// kinds.
int agentOfKind(int k) { return int(texel(agents, 2 * (int(start) + k) + 1).z); }

// OKLCH to sRGB, with the hue as a unit vector, which avoids angles.
vec3 oklch(float lightness, float chroma, vec2 hue) {
  vec2 ab = chroma * hue;
  vec3 lms = lightness + mat2x3(0.3963378, -0.1055613, -0.0894842, 0.2158038, -0.0638542, -1.2914855) * ab;
  mat3 toRgb = mat3(4.0767417, -1.268438, -0.0041961, -3.3077116, 2.6097574, -0.7034186,
                    0.2309699, -0.3413194, 1.7076147);
  vec3 x = clamp(toRgb * (lms * lms * lms), 0.0, 1.0);
  vec3 root = sqrt(x);
  vec3 fourth = sqrt(root);
  // The sRGB transfer function within 0.007; exact powers would take most of the time of a trail.
  return 0.6620027 * root + 0.6841221 * fourth - 0.3235836 * sqrt(fourth) - 0.0225411 * x;
}

// Colour of agent i: grey if it has failed, else that of its group or, with a single group, of the heading.
vec3 colourOf(int i, float light, float vividness, vec2 heading) {
  int group = int(texel(agents, 2 * i + 1).w);
  return group > 0 ? groups[group - 1].rgb + light - lightness : oklch(light, vividness, heading);
}

// Vertex k of a ring between an inner and an outer radius; inner radius 0 gives a disc.
vec2 ring(int k, vec2 radii) {
  const vec2 CORNERS[6] = vec2[](vec2(0, 0), vec2(0, 1), vec2(1, 1), vec2(0, 0), vec2(1, 1), vec2(1, 0));
  vec2 corner = CORNERS[k % 6];
  float angle = 6.2831853 * (float(k / 6) + corner.x) / ${RING_VERTICES / 6}.0;
  return mix(radii.x, radii.y, corner.y) * vec2(cos(angle), sin(angle));
}
`;

const SHADERS = {
  // Vertical lines, then horizontal ones. Every other line fades as the view zooms out, so that none appears abruptly.
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

  // A line from agent to agent: the index of a vertex is that of its agent.
  // Thin rings around the points of a texture, from texel start on.
  markPoints: `
uniform float size;
void main() {
  int k = gl_VertexID % ${MARK_VERTICES};
  vec2 centre = (texel(agents, int(start) + gl_VertexID / ${MARK_VERTICES}).xy + origin) * scale;
  float angle = 6.2831853 * float((k + 1) / 2) / ${MARK_VERTICES / 2}.0;
  gl_Position = clip(centre + size * vec2(cos(angle), sin(angle)));
  colour = paint;
}`,

  // Bands between the two ends, x, y, x, y, in each texel, from texel start on.
  markSegments: `
uniform float size;
void main() {
  const vec2 CORNERS[6] = vec2[](vec2(0, -1), vec2(0, 1), vec2(1, 1), vec2(0, -1), vec2(1, 1), vec2(1, -1));
  vec4 ends = texel(agents, int(start) + gl_VertexID / ${BAND_VERTICES});
  vec2 from = (ends.xy + origin) * scale;
  vec2 along = (ends.zw - ends.xy) * scale;
  float way = length(along);
  vec2 unit = way > 0.0 ? along / way : vec2(1.0, 0.0);
  vec2 corner = CORNERS[gl_VertexID % ${BAND_VERTICES}];
  gl_Position = clip(from + corner.x * along + 0.5 * size * corner.y * vec2(-unit.y, unit.x));
  colour = paint;
}`,

  edges: `
void main() {
  gl_Position = clip(agent(gl_VertexID).xy);
  colour = paint;
}`,

  // Half a line: from a receiver, with an even index, to the midpoint between it and the sender, the next index.
  halfEdges: `
layout(location = 0) in uint self;
layout(location = 1) in uint previous;
void main() {
  vec2 place = agent(int(self)).xy;
  gl_Position = clip(gl_VertexID % 2 == 0 ? place : 0.5 * (place + agent(int(previous)).xy));
  colour = paint;
}`,

  // A rectangle (pixels, y up) of an image that has the scale of the panel.
  image: `
uniform sampler2D image;
uniform vec4 area;
uniform vec2 panel;
void main() {
  vec2 corner = mix(area.xy, area.zw, vec2(gl_VertexID % 2, gl_VertexID / 2));
  gl_Position = vec4(2.0 * corner / panel - 1.0, 0.0, 1.0);
  colour = vec4(corner / vec2(textureSize(image, 0)), 0.0, 1.0);  // place in the image
}`,

  // The segment of each agent from one trail slot to the next, fading with age.
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
  vec2 heading = way > 0.0 ? (to - from) / way : vec2(0.0);
  colour = vec4(colourOf(i, lightness, chroma, heading), opacity * strength * strength);
}`,

  rings: `
uniform vec2 radii;
void main() {
  vec2 centre = agent(agentOfKind(gl_VertexID / ${RING_VERTICES})).xy;
  gl_Position = clip(centre + ring(gl_VertexID % ${RING_VERTICES}, radii));
  colour = paint;
}`,

  // A folded sheet: nose, wing and notch of the left half, then of the right half, which is darker.
  darts: `
uniform float size, outline;
const vec2 CORNERS[3] = vec2[](vec2(0.56, 0.0), vec2(-0.44, 0.32), vec2(-0.24, 0.0));
const vec2 OUTWARDS[3] = vec2[](vec2(2.4, 0.0), vec2(-1.0, 1.3), vec2(-1.0, 0.0));
void main() {
  int k = gl_VertexID % ${DART_VERTICES};
  int i = agentOfKind(gl_VertexID / ${DART_VERTICES});
  vec4 self = agent(i);
  float speed = length(self.zw);
  vec2 heading = speed > 0.0 ? self.zw / speed : vec2(1.0, 0.0);
  float side = k < 3 ? 1.0 : -1.0;
  vec2 point = (CORNERS[k % 3] * size + OUTWARDS[k % 3] * outline) * vec2(1.0, side);
  gl_Position = clip(self.xy + mat2(heading, -heading.y, heading.x) * point);
  // Without paint, the colour is that of the group or the heading; slow agents, with an uncertain heading, are grey.
  float vividness = chroma * smoothstep(0.0, 0.15, speed);
  colour = paint.a > 0.0 ? paint : vec4(colourOf(i, lightness + 0.04 * side, vividness, heading), 1.0);
}`,
};

const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 colour;
out vec4 fragment;
void main() { fragment = colour; }`;

const IMAGE_FRAGMENT = `#version 300 es
precision highp float;
uniform sampler2D image;
in vec4 colour;
out vec4 fragment;
void main() { fragment = texture(image, colour.xy); }`;

/** Compile all programs; return them by name, as functions that activate one with uniforms and textures by name. */
export function buildPrograms(gl) {
  const build = ([name, source]) => [name, buildProgram(gl, source, name === "image" ? IMAGE_FRAGMENT : FRAGMENT)];
  return Object.fromEntries(Object.entries(SHADERS).map(build));
}

/** Compile a program; throw an Error with the log if that fails, unless the WebGL context is lost. */
function buildProgram(gl, vertexSource, fragmentSource) {
  const program = gl.createProgram();
  for (const [type, source] of [
    [gl.VERTEX_SHADER, VERTEX_PRELUDE + vertexSource],
    [gl.FRAGMENT_SHADER, fragmentSource],
  ]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) {
    const logs = gl.getAttachedShaders(program).map((shader) => gl.getShaderInfoLog(shader));
    throw new Error(`A shader does not compile: ${logs.join(" ")}`);
  }
  const locations = {};
  for (let i = 0; i < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); i++) {
    const { name } = gl.getActiveUniform(program, i);
    locations[name.replace("[0]", "")] = gl.getUniformLocation(program, name);
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
