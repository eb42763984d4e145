// What each node and edge looks like: colour, and always a shape, width or dash beside it.
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

function put(colours: Uint8Array, i: number, [r, g, b]: Rgb, alpha: number): void {
  colours[4 * i] = r;
  colours[4 * i + 1] = g;
  colours[4 * i + 2] = b;
  colours[4 * i + 3] = Math.round(alpha * 255);
}

function style(styles: Uint8Array, i: number, first: number, second: number): void {
  styles[4 * i] = first;
  styles[4 * i + 1] = second;
}

/** 0 to 1 for each value; on a logarithmic scale for visits, whose few large values would hide the rest. */
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

const BASE_RADIUS = 3.25;

/** Colour, shape and radius of every node. */
function paintNodes(graph: Graph, mode: ColourMode, palette: Palette, paint: Paint): void {
  const share = relative(mode === "visits" ? graph.visits : graph.age, mode === "visits");
  const table = Array.from({ length: 256 }, (_, i) => along(palette.ramp, i / 255));
  for (let i = 0; i < graph.component.length; i++) {
    const part = graph.component[i]!;
    if (part === NOT_THERE) {
      put(paint.nodes, i, palette.edge, 0);
      continue;
    }
    const t = share(i);
    const ramp = mode === "age" || mode === "visits";
    const colour = ramp
      ? table[Math.round(t * 255)]!
      : mode === "component" ? palette.components[part % palette.components.length]! : palette.ink;
    put(paint.nodes, i, colour, 1);
    const shape = mode === "component" ? Math.min(part, 1) * (1 + ((part - 1) % 3)) : CIRCLE;
    const radius = mode === "visits" ? 2.25 + 4 * t : mode === "evidence" ? 2.25 : BASE_RADIUS;
    style(paint.shapes, i, shape, Math.round(8 * radius));
  }
}

/** The stroke of an edge that stands and is not guarded. */
function standing(graph: Graph, mode: ColourMode, palette: Palette): (i: number, put: Put) => void {
  const classes = strokes(palette);
  if (mode === "evidence") {
    return (i, put) => put(classes[evidence(graph.successes[i]!, graph.failures[i]!)]!);
  }
  const plain: Stroke = { name: "", colour: palette.edge, width: 1, dash: SOLID, alpha: 0.6 };
  if (mode !== "component") return (_, put) => put(plain);
  const parts = palette.components.map((colour) => ({ ...plain, colour, alpha: 0.5 }));
  return (i, put) => {
    const part = graph.component[graph.source[i]!]!;
    put(part === graph.component[graph.target[i]!] ? parts[part % parts.length]! : plain);
  };
}

type Put = (stroke: Stroke) => void;

function paintEdges(graph: Graph, mode: ColourMode, palette: Palette, removed: boolean, paint: Paint): void {
  const gone = REMOVED_STROKE(palette);
  const kept = GUARDED_STROKE(palette);
  const normal = standing(graph, mode, palette);
  let i = 0;
  const draw = (stroke: Stroke) => {
    put(paint.edges, i, stroke.colour, stroke.alpha);
    style(paint.strokes, i, Math.round(8 * stroke.width), stroke.dash);
  };
  for (; i < graph.source.length; i++) {
    const state = graph.state[i]!;
    if (state === ABSENT || (state === REMOVED && !removed)) put(paint.edges, i, palette.edge, 0);
    else if (state === REMOVED) draw(gone);
    else if (state === GUARDED) draw(kept);
    else normal(i, draw);
  }
}

/** Fills `paint` for one way of colouring; `removed` says whether removed edges are drawn. */
export function repaint(graph: Graph, mode: ColourMode, palette: Palette, removed: boolean, paint: Paint): void {
  paintNodes(graph, mode, palette, paint);
  paintEdges(graph, mode, palette, removed, paint);
}
