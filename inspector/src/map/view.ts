// The map: two canvases, one for the graph and one above it for plan and selection.
import { COLOURS, type ColourMode } from "../place";
import type { Graph } from "../types";
import { bounds, type Box, Camera } from "./camera";
import { GlRenderer } from "./gl";
import { type Paint, blank, repaint } from "./paint";
import { DARK, LIGHT, type Palette } from "./palette";
import { PlainRenderer } from "./plain";
import { drawShapes, type Point, type Shape, writeSvg } from "./shapes";
import { type Renderer, typicalLength } from "./renderer";

/** Milliseconds and bytes, for tests and measurements: see `window.sgmInspector`. */
export interface Timings {
  renderer: string;
  software: boolean;
  payload: number; // bytes of the graph's arrays, not compressed
  firstPicture: number; // ms since navigation
  recolour: number; // ms of the latest recolouring, without drawing
  frame: number; // ms of script for the latest frame
}

const MOTION = matchMedia("(prefers-reduced-motion: reduce)");
const NIGHT = matchMedia("(prefers-color-scheme: dark)");
const SLIDE = 220; // ms
const NEAREST = 4; // typical edges from the centre to the border, when the camera moves to something small

export class MapView {
  readonly camera = new Camera();
  readonly timings: Timings = { renderer: "", software: false, payload: 0, firstPicture: 0, recolour: 0, frame: 0 };
  paint!: Paint;
  graph!: Graph;
  palette: Palette = NIGHT.matches ? DARK : LIGHT;
  shapes: Shape[] = [];
  onFault: (text: string) => void = () => {};
  private floor = new Float32Array(0);
  private mode: ColourMode = "component";
  private removed = true;
  private showFloor = true;
  private renderer: Renderer;
  private pending = 0;
  private sliding = 0;
  private ratio = 1;
  private moved = false; // the camera no longer shows everything
  private length = 1;
  private readonly above: CanvasRenderingContext2D;

  constructor(
    private canvas: HTMLCanvasElement,
    private readonly top: HTMLCanvasElement,
    plain: boolean,
  ) {
    this.above = top.getContext("2d")!;
    this.renderer = this.start(plain);
    new ResizeObserver(() => this.resize()).observe(top);
    NIGHT.addEventListener("change", () => this.setTheme());
  }

  private start(plain: boolean): Renderer {
    const gl = plain ? null : this.canvas.getContext("webgl2", { antialias: false, depth: false, alpha: false });
    if (gl) {
      try {
        this.canvas.addEventListener("webglcontextlost", () => this.fallBack("The graphics context was lost; the map is now drawn without WebGL."));
        const renderer = new GlRenderer(gl);
        Object.assign(this.timings, { renderer: renderer.kind, software: renderer.software });
        return renderer;
      } catch (fault) {
        queueMicrotask(() => this.onFault(String((fault as Error).message)));
        this.replaceCanvas();
      }
    }
    this.timings.renderer = "canvas2d";
    return new PlainRenderer(this.canvas.getContext("2d", { alpha: false })!);
  }

  private fallBack(text: string): void {
    this.replaceCanvas();
    this.renderer = this.start(true);
    if (this.graph) this.renderer.load(this.scene());
    this.resize();
    this.onFault(text);
  }

  /** Replaces the canvas: one that had a WebGL context cannot have another. */
  private replaceCanvas(): void {
    const fresh = this.canvas.cloneNode() as HTMLCanvasElement;
    this.canvas.replaceWith(fresh);
    this.canvas = fresh;
  }

  private scene() {
    return { graph: this.graph, paint: this.paint, floor: this.showFloor ? this.floor : new Float32Array(0) };
  }

  setGraph(graph: Graph): void {
    const same = this.graph?.position === graph.position && this.graph?.source === graph.source;
    this.graph = graph;
    if (!same) this.paint = blank(graph);
    this.repaint(!same);
    this.length = typicalLength(graph);
  }

  setFloor(lines: number[][]): void {
    this.floor = new Float32Array(lines.flat());
    this.repaint(false);
  }

  setLook(mode: ColourMode, removed: boolean, floor: boolean): void {
    if (mode === this.mode && removed === this.removed && floor === this.showFloor) return;
    [this.mode, this.removed, this.showFloor] = [mode, removed, floor];
    this.repaint(false);
  }

  setShapes(shapes: Shape[]): void {
    this.shapes = shapes;
    this.request();
  }

  private setTheme(): void {
    this.palette = NIGHT.matches ? DARK : LIGHT;
    this.repaint(false);
  }

  private repaint(load: boolean): void {
    if (!this.graph) return;
    const start = performance.now();
    repaint(this.graph, this.mode, this.palette, this.removed, this.paint);
    if (load) this.renderer.load(this.scene());
    else this.renderer.recolour(this.scene());
    this.timings.recolour = performance.now() - start;
    this.request();
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.top;
    this.ratio = Math.min(window.devicePixelRatio || 1, 2);
    for (const canvas of [this.canvas, this.top]) {
      canvas.width = Math.max(1, Math.round(width * this.ratio));
      canvas.height = Math.max(1, Math.round(height * this.ratio));
    }
    [this.camera.width, this.camera.height] = [Math.max(width, 1), Math.max(height, 1)];
    if (!this.moved && this.graph) this.camera.fit(this.world());
    if (this.graph) this.drawNow();
  }

  request(): void {
    if (!this.pending) this.pending = requestAnimationFrame(() => this.drawNow());
  }

  /** Draws one frame; returns milliseconds of script. */
  drawNow(): number {
    this.pending = 0;
    if (!this.graph) return 0;
    const start = performance.now();
    this.renderer.draw(this.camera, this.palette, this.ratio);
    this.above.setTransform(1, 0, 0, 1, 0, 0);
    this.above.clearRect(0, 0, this.top.width, this.top.height);
    drawShapes(this.above, [...this.nodeLabels(), ...this.shapes], this.camera, this.palette, this.ratio);
    this.timings.frame = performance.now() - start;
    if (!this.timings.firstPicture) this.timings.firstPicture = performance.now();
    return this.timings.frame;
  }

  /** Draws `count` frames one after another and waits for each: for measurements. */
  frames(count: number): void {
    for (let i = 0; i < count; i++) {
      this.camera.pan(i % 2 ? 1 : -1, 0);
      this.drawNow();
      this.renderer.finish();
    }
  }

  /** Like `frames`, with new colours for each. */
  recolours(count: number): void {
    const kept = this.mode;
    for (let i = 0; i < count; i++) {
      this.mode = COLOURS[i % COLOURS.length]!;
      this.repaint(false);
      this.frames(1);
    }
    this.mode = kept;
    this.repaint(false);
  }

  /** Node numbers, where edges are long enough for them. */
  private nodeLabels(): Shape[] {
    if (this.length * this.camera.scale < 64) return [];
    const { x0, y0, x1, y1 } = this.camera.box();
    const { position } = this.graph;
    const labels: Shape[] = [];
    for (let i = 0; i < position.length / 2 && labels.length < 150; i++) {
      const [x, y] = [position[2 * i]!, position[2 * i + 1]!];
      if (!(x > x0 && x < x1 && y > y0 && y < y1) || this.paint.nodes[4 * i + 3] === 0) continue;
      labels.push({ kind: "label", at: [x, y], text: String(i) });
    }
    return labels;
  }

  /** The box around all nodes and the floor plan. */
  world(): Box {
    const nodes = bounds(this.graph.position);
    if (!this.floor.length) return nodes;
    const floor = bounds(this.floor);
    return {
      x0: Math.min(nodes.x0, floor.x0), y0: Math.min(nodes.y0, floor.y0),
      x1: Math.max(nodes.x1, floor.x1), y1: Math.max(nodes.y1, floor.y1),
    };
  }

  fit(): void {
    const to = this.copy();
    to.fit(this.world());
    this.slide(to);
    this.moved = false;
  }

  /** Shows everything at once. */
  fitNow(): void {
    this.hold();
    this.camera.fit(this.world());
    this.moved = false;
    this.request();
  }

  /** Moves the camera so that these points are visible; it stays if they are and can be distinguished. */
  reveal(points: Point[]): void {
    const box = bounds(points.filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y)).flat());
    const { x0, y0, x1, y1 } = this.camera.box(-30);
    const inside = box.x0 >= x0 && box.x1 <= x1 && box.y0 >= y0 && box.y1 <= y1;
    const apart = Math.max(box.x1 - box.x0, box.y1 - box.y0) * this.camera.scale;
    if (!points.length || (inside && (points.length !== 2 || apart > 24))) return;
    const to = this.copy();
    const across = Math.max(box.x1 - box.x0, box.y1 - box.y0);
    const room = Math.max(across * 0.15, NEAREST * this.length - across / 2);
    const wide = { x0: box.x0 - room, y0: box.y0 - room, x1: box.x1 + room, y1: box.y1 + room };
    const scale = to.scale;
    to.fit(wide);
    if (points.length < 2) to.scale = scale;
    this.slide(to);
  }

  private copy(): Camera {
    return Object.assign(new Camera(), this.camera);
  }

  /** Moves to another camera, at once if the reader prefers reduced motion, otherwise in a fifth of a second. */
  private slide(to: Camera): void {
    this.hold();
    if (MOTION.matches || document.hidden) {
      Object.assign(this.camera, to);
      return this.request();
    }
    const from = this.copy();
    const start = performance.now();
    const move = (now: number) => {
      const t = Math.min(Math.max((now - start) / SLIDE, 0), 1);
      const ease = t * t * (3 - 2 * t);
      this.camera.scale = from.scale * (to.scale / from.scale) ** ease;
      this.camera.x = from.x + (to.x - from.x) * ease;
      this.camera.y = from.y + (to.y - from.y) * ease;
      this.drawNow();
      if (t < 1) this.sliding = requestAnimationFrame(move);
      else Object.assign(this.camera, to, { width: this.camera.width, height: this.camera.height });
    };
    this.sliding = requestAnimationFrame(move);
  }

  /** Stops a slide: the reader moves the map now. */
  hold(): void {
    cancelAnimationFrame(this.sliding);
    this.moved = true;
  }

  /** The view as a PNG file, with `note` at its upper border. */
  png(note: string): Promise<Blob | null> {
    this.drawNow();
    const sheet = document.createElement("canvas");
    [sheet.width, sheet.height] = [this.canvas.width, this.canvas.height];
    const pen = sheet.getContext("2d")!;
    pen.drawImage(this.canvas, 0, 0);
    pen.drawImage(this.top, 0, 0);
    const above: Shape = { kind: "label", at: this.camera.toWorld(this.camera.width / 2, 0), text: note };
    if (note) drawShapes(pen, [above], this.camera, this.palette, this.ratio);
    return new Promise((done) => sheet.toBlob(done, "image/png"));
  }

  svg(title: string): string {
    return writeSvg(title, this.shapes, this.scene().floor, this.camera, this.palette);
  }

  place(node: number): Point {
    return [this.graph.position[2 * node] ?? NaN, this.graph.position[2 * node + 1] ?? NaN];
  }
}
