// The Canvas 2D renderer, for browsers without WebGL2: the same picture, slower.
import type { Camera } from "./camera";
import { DASHED, DOTTED } from "./paint";
import { css, type Palette } from "./palette";
import { HEAD_FROM, nodeZoom, type Renderer, type Scene, typicalLength, visibleEdges } from "./renderer";

export const DASHES: Record<number, number[]> = { 0: [], [DASHED]: [5, 4], [DOTTED]: [2, 3] };

export class PlainRenderer implements Renderer {
  readonly kind = "canvas2d";
  private scene!: Scene;
  private visible = new Uint32Array(0);
  private length = 1;

  constructor(private readonly pen: CanvasRenderingContext2D) {}

  load(scene: Scene): void {
    this.visible = new Uint32Array(scene.graph.source.length);
    this.length = typicalLength(scene.graph);
    this.recolour(scene);
  }

  recolour(scene: Scene): void {
    this.scene = scene;
  }

  draw(camera: Camera, palette: Palette, ratio: number): void {
    const { pen } = this;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = css(palette.paper);
    pen.fillRect(0, 0, camera.width, camera.height);
    this.drawFloor(camera, palette);
    this.drawEdges(camera);
    this.drawNodes(camera);
  }

  private drawFloor(camera: Camera, palette: Palette): void {
    const { pen, scene } = this;
    pen.strokeStyle = css(palette.floor);
    pen.lineWidth = 2;
    pen.setLineDash([]);
    pen.beginPath();
    for (let i = 0; i < scene.floor.length; i += 4) {
      pen.moveTo(...camera.toScreen(scene.floor[i]!, scene.floor[i + 1]!));
      pen.lineTo(...camera.toScreen(scene.floor[i + 2]!, scene.floor[i + 3]!));
    }
    pen.stroke();
  }

  /** Draws all edges with the same look as one path. */
  private drawEdges(camera: Camera): void {
    const count = visibleEdges(this.scene, camera, this.visible);
    const { edges, strokes } = this.scene.paint;
    const looks = new Map<string, number[]>();
    for (let k = 0; k < count; k++) {
      const i = this.visible[k]!;
      const look = [edges[4 * i], edges[4 * i + 1], edges[4 * i + 2], edges[4 * i + 3], strokes[4 * i], strokes[4 * i + 1]].join();
      const members = looks.get(look);
      if (members) members.push(i);
      else looks.set(look, [i]);
    }
    for (const [look, members] of looks) this.drawLook(look.split(",").map(Number), members, camera);
    this.pen.setLineDash([]);
  }

  private drawLook(look: number[], members: number[], camera: Camera): void {
    const { pen } = this;
    const heads = this.length * camera.scale > HEAD_FROM;
    const { position, source, target } = this.scene.graph;
    pen.strokeStyle = css([look[0]!, look[1]!, look[2]!], look[3]! / 255);
    pen.lineWidth = look[4]! / 8;
    pen.setLineDash(DASHES[look[5]!]!);
    pen.beginPath();
    for (const i of members) {
      const a = camera.toScreen(position[2 * source[i]!]!, position[2 * source[i]! + 1]!);
      const b = camera.toScreen(position[2 * target[i]!]!, position[2 * target[i]! + 1]!);
      pen.moveTo(...a);
      pen.lineTo(...b);
      if (heads) arrowHead(pen, a, b, 6);
    }
    pen.stroke();
  }

  private drawNodes(camera: Camera): void {
    const { pen, scene } = this;
    const { position, component } = scene.graph;
    const { nodes, shapes } = scene.paint;
    const zoom = nodeZoom(camera, this.length);
    for (let i = 0; i < component.length; i++) {
      if (nodes[4 * i + 3] === 0) continue;
      const [x, y] = camera.toScreen(position[2 * i]!, position[2 * i + 1]!);
      if (!(x > -9 && y > -9 && x < camera.width + 9 && y < camera.height + 9)) continue;
      pen.fillStyle = css([nodes[4 * i]!, nodes[4 * i + 1]!, nodes[4 * i + 2]!]);
      pen.beginPath();
      outline(pen, shapes[4 * i]!, x, y, Math.max((shapes[4 * i + 1]! / 8) * zoom, 1));
      pen.fill();
    }
  }

  finish(): void {
    this.pen.getImageData(0, 0, 1, 1);
  }
}

/** The two strokes of an arrow head at `b`. */
export function arrowHead(pen: CanvasRenderingContext2D, a: [number, number], b: [number, number], size: number): void {
  const angle = Math.atan2(b[1] - a[1], b[0] - a[0]);
  for (const turn of [2.7, -2.7]) {
    pen.moveTo(b[0], b[1]);
    pen.lineTo(b[0] + size * Math.cos(angle + turn), b[1] + size * Math.sin(angle + turn));
  }
}

/** Adds the outline of a node's shape to the path. */
export function outline(pen: CanvasRenderingContext2D, shape: number, x: number, y: number, radius: number): void {
  if (shape === 0) {
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    return;
  }
  const corners = shape === 3 ? 3 : 4;
  const first = shape === 1 ? -Math.PI / 4 : -Math.PI / 2;
  for (let k = 0; k < corners; k++) {
    const angle = first + (2 * Math.PI * k) / corners;
    const [px, py] = [x + 1.25 * radius * Math.cos(angle), y + 1.25 * radius * Math.sin(angle)];
    if (k) pen.lineTo(px, py);
    else pen.moveTo(px, py);
  }
  pen.closePath();
}
