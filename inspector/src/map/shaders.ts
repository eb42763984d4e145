// The programs of the WebGL2 renderer. Edges and their colours are in textures, read by vertex number, so that a new
// colouring is one small upload.

const COMMON = `#version 300 es
precision highp float;
precision highp int;
uniform vec4 view;   // centre x, y; pixels per unit; device pixels per pixel
uniform vec2 size;   // canvas in CSS pixels
vec2 pixels(vec2 p) { return (p - view.xy) * view.z; }
vec4 clip(vec2 q) { return vec4(q * 2.0 / size, 0.0, 1.0); }
`;

const FETCH = `
uniform highp sampler2D ends;
uniform highp sampler2D colours;
uniform highp sampler2D strokes;
ivec2 cell(int i) { return ivec2(i & 1023, i >> 10); }
`;

/** Two vertices per edge, drawn as lines that fade towards the target: fast, for many edges. */
export const LINES = [
  `${COMMON}${FETCH}
out vec4 colour;
out float along;
flat out int dash;
void main() {
  int edge = gl_VertexID >> 2;
  bool last = (gl_VertexID & 1) == 1;
  vec4 e = texelFetch(ends, cell(edge), 0);
  colour = texelFetch(colours, cell(edge), 0);
  dash = int(texelFetch(strokes, cell(edge), 0).y * 255.0 + 0.5);
  along = last ? distance(e.xy, e.zw) * view.z : 0.0;
  colour.a *= last ? 0.35 : 1.0;
  gl_Position = colour.a == 0.0 ? vec4(2.0, 2.0, 2.0, 1.0) : clip(pixels(last ? e.zw : e.xy));
}`,
  `#version 300 es
precision mediump float;
in vec4 colour;
in float along;
flat in int dash;
out vec4 result;
void main() {
  if (dash == 1 && mod(along, 9.0) > 5.0) discard;
  if (dash == 2 && mod(along, 5.0) > 2.5) discard;
  result = vec4(colour.rgb * colour.a, colour.a);
}`,
] as const;

/** Four vertices per edge: a shaft with soft borders, or, with head = 1, the arrow head at its target. */
export const SHAFTS = [
  `${COMMON}${FETCH}
uniform float head;
uniform float gap;    // pixels from a node's centre that stay free
uniform float taper;  // width at the target, as a share of the width at the source
out vec4 colour;
out vec3 place;       // pixels along, pixels aside, half width
flat out int dash;
void main() {
  int edge = gl_VertexID >> 2;
  int corner = gl_VertexID & 3;
  vec4 e = texelFetch(ends, cell(edge), 0);
  colour = texelFetch(colours, cell(edge), 0);
  vec4 stroke = texelFetch(strokes, cell(edge), 0) * 255.0;
  dash = int(stroke.y + 0.5);
  vec2 a = pixels(e.xy);
  vec2 b = pixels(e.zw);
  float length_ = max(distance(a, b), 1e-3);
  vec2 d = (b - a) / length_;
  vec2 n = vec2(d.y, -d.x);
  float half_ = stroke.x / 16.0;
  float free = min(gap, length_ * 0.3);
  float side = (corner & 1) == 0 ? -1.0 : 1.0;
  vec2 shift = n * min(2.2, length_ * 0.04);
  if (head > 0.5) {
    float tall = min(5.0 + 2.4 * half_, length_ * 0.3);
    float wide = tall * 0.46;
    vec2 tip = b - d * free + shift;
    vec2 q = corner == 2 ? tip : tip - d * tall + n * side * wide;
    place = vec3(0.0, 0.0, 1.0);
    dash = 0;
    gl_Position = clip(q);
  } else {
    bool last = corner > 1;
    float w = half_ * (last ? taper : 1.0);
    float t = last ? length_ - free : free;
    place = vec3(t, side * (half_ + 1.0), w);
    gl_Position = clip(a + d * t + n * side * (half_ + 1.0) + shift);
  }
  if (colour.a == 0.0) gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
}`,
  `#version 300 es
precision mediump float;
in vec4 colour;
in vec3 place;
flat in int dash;
out vec4 result;
void main() {
  if (dash == 1 && mod(place.x, 9.0) > 5.0) discard;
  if (dash == 2 && mod(place.x, 5.0) > 2.5) discard;
  float alpha = colour.a * clamp(place.z + 0.5 - abs(place.y), 0.0, 1.0);
  result = vec4(colour.rgb * alpha, alpha);
}`,
] as const;

/** Nodes: circle, square, diamond or triangle with a rim in the colour of the paper. */
export const NODES = [
  `${COMMON}
layout(location = 0) in vec2 position;
layout(location = 1) in vec4 tint;
layout(location = 2) in vec4 shape;
uniform float zoom;
out vec4 colour;
flat out int kind;
flat out float radius;
void main() {
  colour = tint;
  kind = int(shape.x + 0.5);
  radius = max(shape.y / 8.0 * zoom, 1.0) * view.w;
  gl_PointSize = 2.0 * radius + 3.0;
  gl_Position = tint.a == 0.0 ? vec4(2.0, 2.0, 2.0, 1.0) : clip(pixels(position));
}`,
  `#version 300 es
precision mediump float;
in vec4 colour;
flat in int kind;
flat in float radius;
uniform vec3 rim;
out vec4 result;
void main() {
  vec2 p = (gl_PointCoord - 0.5) * (2.0 * radius + 3.0);
  float d = length(p);
  if (kind == 1) d = max(abs(p.x), abs(p.y)) * 1.12;
  else if (kind == 2) d = (abs(p.x) + abs(p.y)) * 0.8;
  else if (kind == 3) d = max(abs(p.x) * 0.87 - p.y * 0.5, p.y) * 1.5 - 0.0;
  float alpha = clamp(radius + 0.9 - d, 0.0, 1.0);
  float inside = radius < 2.2 ? 1.0 : clamp(radius - 0.4 - d, 0.0, 1.0);
  result = vec4(mix(rim, colour.rgb, inside) * alpha, alpha);
}`,
] as const;

/** Lines of the floor plan, as quads of a constant width. */
export const FLOOR = [
  `${COMMON}
layout(location = 0) in vec4 ends;
layout(location = 1) in vec2 corner;  // 0 or 1 along, -1 or 1 aside
uniform float wide;
void main() {
  vec2 a = pixels(ends.xy);
  vec2 b = pixels(ends.zw);
  vec2 d = (b - a) / max(distance(a, b), 1e-3);
  gl_Position = clip(mix(a, b, corner.x) + (vec2(-d.y, d.x) * corner.y + d * (2.0 * corner.x - 1.0)) * wide * 0.5);
}`,
  `#version 300 es
precision mediump float;
uniform vec3 rim;
out vec4 result;
void main() { result = vec4(rim, 1.0); }`,
] as const;
