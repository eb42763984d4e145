// Finds the node or edge under the pointer, and the next node in a direction.
import type { Graph } from "../types";
import type { Camera } from "./camera";
import type { Paint } from "./paint";

/** The nearest drawn node within `reach` pixels of a point of the canvas, or −1. */
export function nodeAt(graph: Graph, paint: Paint, camera: Camera, px: number, py: number, reach = 12): number {
  const [x, y] = camera.toWorld(px, py);
  let [best, nearest] = [-1, (reach / camera.scale) ** 2];
  const { position } = graph;
  for (let i = 0; i < position.length / 2; i++) {
    if (paint.nodes[4 * i + 3] === 0) continue;
    const d = (position[2 * i]! - x) ** 2 + (position[2 * i + 1]! - y) ** 2;
    if (d < nearest) [best, nearest] = [i, d];
  }
  return best;
}

/** The nearest drawn edge within `reach` pixels; of two opposite edges, the one whose target is nearer. */
export function edgeAt(graph: Graph, paint: Paint, camera: Camera, px: number, py: number, reach = 6): number {
  const [x, y] = camera.toWorld(px, py);
  const { position, source, target } = graph;
  let [best, nearest] = [-1, (reach / camera.scale) ** 2];
  for (let i = 0; i < source.length; i++) {
    if (paint.edges[4 * i + 3] === 0) continue;
    const [u, v] = [2 * source[i]!, 2 * target[i]!];
    const [ux, uy] = [position[u]!, position[u + 1]!];
    const [dx, dy] = [position[v]! - ux, position[v + 1]! - uy];
    const length = dx * dx + dy * dy;
    const t = length > 0 ? Math.min(Math.max(((x - ux) * dx + (y - uy) * dy) / length, 0), 1) : 0;
    const d = ((ux + t * dx - x) ** 2 + (uy + t * dy - y) ** 2) * (1.001 - 0.001 * t);
    if (d < nearest) [best, nearest] = [i, d];
  }
  return best;
}

/** The nearest node from `from` in a direction (world coordinates), within 45 degrees of it; −1 if there is none. */
export function towards(graph: Graph, paint: Paint, from: number, dx: number, dy: number): number {
  const { position } = graph;
  let [best, nearest] = [-1, Infinity];
  for (let i = 0; i < position.length / 2; i++) {
    if (i === from || paint.nodes[4 * i + 3] === 0) continue;
    const [x, y] = [position[2 * i]! - position[2 * from]!, position[2 * i + 1]! - position[2 * from + 1]!];
    const ahead = x * dx + y * dy;
    const aside = Math.abs(x * dy - y * dx);
    if (!(ahead > 0) || aside > ahead) continue;
    if (ahead + aside < nearest) [best, nearest] = [i, ahead + aside];
  }
  return best;
}

/** The number of edge u → v, or −1. */
export function edgeIndex(graph: Graph, u: number, v: number): number {
  const { source, target } = graph;
  for (let i = 0; i < source.length; i++) if (source[i] === u && target[i] === v) return i;
  return -1;
}
