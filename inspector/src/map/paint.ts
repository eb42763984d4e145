// The look of each node and edge: a colour, and always also a shape, width or dash.
import type { ColourMode } from "../place";
import { ABSENT, type Graph, GUARDED, NOT_THERE, REMOVED } from "../types";
import { along, type Palette, type Rgb } from "./palette";

export const CIRCLE = 0;
export const SQUARE = 1;
export const DIAMOND = 2;
export const TRIANGLE = 3;

export const SOLID = 0;
export const DASHED = 1;
export const DOTTED = 2;

/** Bytes the renderers read. */
export interface Paint {
  nodes: Uint8Array; // (V, 4) red, green, blue, opacity; opacity 0 is not drawn
  shapes: Uint8Array; // (V, 4) shape, radius in eighths of a pixel, 0, 0
  edges: Uint8Array; // (E, 4) red, green, blue, opacity; opacity 0 is not drawn
  strokes: Uint8Array; // (E, 4) width in eighths of a pixel, dash, 0, 0
}

/** How edges with one kind of evidence are drawn; the legend shows the same. */
export interface Stroke {
  name: string;
  colour: Rgb;
  width: number; // pixels
  dash: number;
  alpha: number;
}

export const UNTRIED = 0;
export const REACHED = 1;
export const MIXED = 2;
export const FAILED = 3;

export function strokes(palette: Palette): Stroke[] {
  return [
    { name: "not tried", colour: palette.edge, width: 1, dash: SOLID, alpha: 0.55 },
    { name: "always reached", colour: palette.reached, width: 2.5, dash: SOLID, alpha: 0.9 },
    { name: "reached and failed", colour: palette.mixed, width: 1.75, dash: SOLID, alpha: 0.9 },
    { name: "only failed", colour: palette.failed, width: 1.25, dash: SOLID, alpha: 0.95 },
  ];
}

export const REMOVED_STROKE = (palette: Palette): Stroke => ({
  name: "removed", colour: palette.removed, width: 1.25, dash: DASHED, alpha: 0.7,
});
export const GUARDED_STROKE = (palette: Palette): Stroke => ({
  name: "guarded: kept although it failed", colour: palette.guarded, width: 2, dash: DOTTED, alpha: 0.95,
});

/** The evidence class of an edge. */
export function evidence(successes: number, failures: number): number {
  if (!failures) return successes ? REACHED : UNTRIED;
  return successes ? MIXED : FAILED;
}

export function blank(graph: Graph): Paint {
  return {
    nodes: new Uint8Array(4 * graph.component.length),
    shapes: new Uint8Array(4 * graph.component.length),
    edges: new Uint8Array(4 * graph.source.length),
    strokes: new Uint8Array(4 * graph.source.length),
  };
}

/** Four bytes as one number of a Uint32Array. */
function pack(a: number, b: number, c = 0, d = 0): number {
  return (a | (b << 8) | (c << 16) | (d << 24)) >>> 0;
}

const ink = ([r, g, b]: Rgb, alpha: number) => pack(r, g, b, Math.round(alpha * 255));
const words = (bytes: Uint8Array) => new Uint32Array(bytes.buffer);

/** Scales each value to 0 to 1; logarithmically for visits, whose few large values would hide the rest. */
export function relative(values: Uint32Array, logarithmic: boolean): (i: number) => number {
  const { low, high } = range(values);
  const f = logarithmic ? Math.log1p : (x: number) => x;
  const span = f(high) - f(low) || 1;
  return (i) => (f(values[i]!) - f(low)) / span;
}

export function range(values: Uint32Array): { low: number; high: number } {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === NOT_THERE) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low > high ? { low: 0, high: 0 } : { low, high };
}

const RADIUS: Record<ColourMode, number> = { component: 3.25, evidence: 2.25, age: 3.25, visits: 2.25 };
const GROWTH = 4; // pixels by which the radius of the most visited node is larger

/** The shape of a component's nodes: the largest has circles, the others take turns. */
export function componentShape(part: number): number {
  return part ? 1 + ((part - 1) % 3) : CIRCLE;
}

/** Colour, shape and radius of every node. */
function paintNodes(graph: Graph, mode: ColourMode, palette: Palette, paint: Paint): void {
  const [colours, shapes] = [words(paint.nodes), words(paint.shapes)];
  const ramp = Array.from({ length: 256 }, (_, i) => ink(along(palette.ramp, i / 255), 1));
  const parts = palette.components.map((colour) => ink(colour, 1));
  const share = relative(mode === "visits" ? graph.visits : graph.age, mode === "visits");
  const dark = ink(palette.ink, 1);
  for (let i = 0; i < graph.component.length; i++) {
    const part = graph.component[i]!;
    if (part === NOT_THERE) colours[i] = 0;
    else if (mode === "component") colours[i] = parts[part % parts.length]!;
    else colours[i] = mode === "evidence" ? dark : ramp[Math.round(255 * share(i))]!;
    const radius = RADIUS[mode] + (mode === "visits" ? GROWTH * share(i) : 0);
    shapes[i] = pack(mode === "component" ? componentShape(part) : CIRCLE, Math.round(8 * radius));
  }
}

/** The possible strokes of edges, and a function that chooses the stroke of an edge in use. */
function choices(graph: Graph, mode: ColourMode, palette: Palette): { looks: Stroke[]; choose: (i: number) => number } {
  if (mode === "evidence") {
    return { looks: strokes(palette), choose: (i) => evidence(graph.successes[i]!, graph.failures[i]!) };
  }
  const plain: Stroke = { name: "", colour: palette.edge, width: 1, dash: SOLID, alpha: 0.6 };
  if (mode !== "component") return { looks: [plain], choose: () => 0 };
  const parts = palette.components.map((colour) => ({ ...plain, colour, alpha: 0.5 }));
  const choose = (i: number) => {
    const part = graph.component[graph.source[i]!]!;
    return part === graph.component[graph.target[i]!] ? 1 + (part % parts.length) : 0;
  };
  return { looks: [plain, ...parts], choose };
}

function paintEdges(graph: Graph, mode: ColourMode, palette: Palette, removed: boolean, paint: Paint): void {
  const { looks, choose } = choices(graph, mode, palette);
  const all = [...looks, GUARDED_STROKE(palette), REMOVED_STROKE(palette)];
  const inks = all.map(({ colour, alpha }) => ink(colour, alpha));
  const styles = all.map(({ width, dash }) => pack(Math.round(8 * width), dash));
  const [colours, lines] = [words(paint.edges), words(paint.strokes)];
  for (let i = 0; i < graph.source.length; i++) {
    const state = graph.state[i]!;
    if (state === ABSENT || (state === REMOVED && !removed)) {
      colours[i] = 0;
      continue;
    }
    const look = state === REMOVED ? all.length - 1 : state === GUARDED ? all.length - 2 : choose(i);
    colours[i] = inks[look]!;
    lines[i] = styles[look]!;
  }
}

/** Fills `paint` for one colouring; `removed`: whether removed edges are drawn. */
export function repaint(graph: Graph, mode: ColourMode, palette: Palette, removed: boolean, paint: Paint): void {
  paintNodes(graph, mode, palette, paint);
  paintEdges(graph, mode, palette, removed, paint);
}
