// The interface of a renderer; there is one for WebGL2 and one for Canvas 2D.
import type { Graph } from "../types";
import type { Camera } from "./camera";
import type { Paint } from "./paint";
import type { Palette } from "./palette";

export interface Scene {
  graph: Graph;
  paint: Paint;
  floor: Float32Array; // (n, 4) x0, y0, x1, y1; empty if there is none or it is switched off
}

export interface Renderer {
  readonly kind: "webgl2" | "canvas2d";
  /** Sets positions and edges; called when the graph changes. */
  load(scene: Scene): void;
  /** Sets colours and strokes; called when they change. */
  recolour(scene: Scene): void;
  draw(camera: Camera, palette: Palette, ratio: number): void;
  /** Returns when everything drawn so far is on the canvas. */
  finish(): void;
}

/** Writes the edges whose bounding boxes cross the canvas to `out`, and returns their number. */
export function visibleEdges(scene: Scene, camera: Camera, out: Uint32Array): number {
  const { position, source, target } = scene.graph;
  const { edges } = scene.paint;
  const { x0, y0, x1, y1 } = camera.box(12);
  let count = 0;
  for (let i = 0; i < source.length; i++) {
    if (edges[4 * i + 3] === 0) continue;
    const u = 2 * source[i]!;
    const v = 2 * target[i]!;
    const ux = position[u]!;
    const vx = position[v]!;
    if ((ux < x0 && vx < x0) || (ux > x1 && vx > x1)) continue;
    const uy = position[u + 1]!;
    const vy = position[v + 1]!;
    if ((uy < y0 && vy < y0) || (uy > y1 && vy > y1) || ux + uy + vx + vy !== ux + uy + vx + vy) continue;
    out[count++] = i;
  }
  return count;
}

/** The median length of an edge, in units of positions; without edges, the spacing of nodes on a grid. */
export function typicalLength({ position, source, target }: Graph): number {
  const lengths: number[] = [];
  const stride = Math.max(1, Math.floor(source.length / 2000));
  for (let i = 0; i < source.length; i += stride) {
    const u = 2 * source[i]!;
    const v = 2 * target[i]!;
    const length = Math.hypot(position[u]! - position[v]!, position[u + 1]! - position[v + 1]!);
    if (Number.isFinite(length)) lengths.push(length);
  }
  return lengths.sort((a, b) => a - b)[lengths.length >> 1] || spacing(position);
}

function spacing(position: Float32Array): number {
  let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let i = 0; i < position.length; i += 2) {
    [left, right] = [Math.min(left, position[i]!), Math.max(right, position[i]!)];
    [low, high] = [Math.min(low, position[i + 1]!), Math.max(high, position[i + 1]!)];
  }
  const across = Math.max(right - left, high - low);
  return across > 0 ? across / Math.sqrt(position.length / 2) : 1;
}

/** The factor by which nodes are scaled at this zoom, so that they neither cover the edges nor vanish. */
export function nodeZoom(camera: Camera, length: number): number {
  return Math.min(Math.max(Math.sqrt((camera.scale * length) / 18), 0.42), 2.6);
}

/** Length on the canvas from which edges have arrow heads, pixels. */
export const HEAD_FROM = 14;
