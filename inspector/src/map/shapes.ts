// Shapes above the graph: plan, selection, labels. The same list is drawn on the canvas and written as SVG.
import type { Camera } from "./camera";
import { css, type Palette, type Rgb } from "./palette";

export type Point = [number, number];
type Colour = "ink" | "plan" | "other" | "chosen" | "reached" | "failed" | "mixed" | "guarded" | "removed" | "edge";

export interface Path {
  kind: "path";
  points: Point[]; // world coordinates
  colour: Colour;
  width: number; // pixels
  dash?: number[];
  arrows?: boolean;
  label?: string; // at its middle
}

export interface Mark {
  kind: "mark";
  at: Point; // world coordinates
  form: "ring" | "disc" | "square" | "cross";
  colour: Colour;
  radius: number; // pixels
  label?: string;
  below?: boolean; // the label is below the mark
}

export interface Label {
  kind: "label";
  at: Point; // world coordinates
  text: string;
}

export type Shape = Path | Mark | Label;

/** Shapes as primitives on the canvas: lines with a casing, arrow heads, marks, texts. */
interface Pen {
  line(points: Point[], colour: string, width: number, dash: number[]): void;
  polygon(points: Point[], fill: string, rim: string): void;
  circle(at: Point, radius: number, fill: string, line: string, width: number): void;
  text(at: Point, text: string, fill: string, halo: string, small?: boolean): void;
}

const finite = ([x, y]: Point) => Number.isFinite(x) && Number.isFinite(y);

function drawPath(path: Path, camera: Camera, palette: Palette, pen: Pen): void {
  const points = path.points.filter(finite).map(([x, y]) => camera.toScreen(x, y));
  if (points.length < 2) return;
  const colour = css(palette[path.colour]);
  pen.line(points, css(palette.paper, 0.85), path.width + 3, []);
  pen.line(points, colour, path.width, path.dash ?? []);
  if (path.arrows) {
    for (let i = 1; i < points.length; i++) {
      const head = arrow(points[i - 1]!, points[i]!, path.width);
      if (head) pen.polygon(head, colour, css(palette.paper));
    }
  }
  if (path.label) {
    const i = Math.max(1, Math.ceil(points.length / 2));
    const [a, b] = [points[i - 1]!, points[i] ?? points[i - 1]!];
    pen.text([(a[0] + b[0]) / 2, (a[1] + b[1]) / 2 - 10], path.label, css(palette.ink), css(palette.paper));
  }
}

/** The arrow head in the middle of an edge, where it hides no node; none on very short edges. */
function arrow(a: Point, b: Point, width: number): Point[] | null {
  const length = Math.hypot(b[0] - a[0], b[1] - a[1]);
  const size = Math.min(5 + 1.6 * width, length * 0.6);
  if (size < 4) return null;
  const [dx, dy] = [(b[0] - a[0]) / length, (b[1] - a[1]) / length];
  const t = length / 2 + size / 2;
  const tip: Point = [a[0] + dx * t, a[1] + dy * t];
  const base: Point = [tip[0] - dx * size, tip[1] - dy * size];
  const w = size * 0.55;
  return [tip, [base[0] - dy * w, base[1] + dx * w], [base[0] + dy * w, base[1] - dx * w]];
}

function drawMark(mark: Mark, camera: Camera, palette: Palette, pen: Pen): void {
  if (!finite(mark.at)) return;
  const [x, y] = camera.toScreen(...mark.at);
  const [colour, paper, r] = [css(palette[mark.colour]), css(palette.paper), mark.radius];
  if (mark.form === "ring") {
    pen.circle([x, y], r + 1.5, "none", paper, 4);
    pen.circle([x, y], r, "none", colour, 2.5);
  } else if (mark.form === "disc") pen.circle([x, y], r, colour, paper, 1.5);
  else if (mark.form === "square") pen.polygon([[x - r, y - r], [x + r, y - r], [x + r, y + r], [x - r, y + r]], colour, paper);
  else {
    for (const [line, width] of [[paper, 6], [colour, 3]] as const) {
      pen.line([[x - r, y - r], [x + r, y + r]], line, width, []);
      pen.line([[x - r, y + r], [x + r, y - r]], line, width, []);
    }
  }
  if (mark.label) pen.text([x, mark.below ? y + r + 16 : y - r - 7], mark.label, css(palette.ink), paper);
}

const ROOM = 26; // pixels around a label without another one

/** Draws labels where there is space, after the marks with labels. */
function drawLabels(shapes: Shape[], camera: Camera, palette: Palette, pen: Pen): void {
  const taken = shapes.flatMap((shape) => (shape.kind === "mark" && shape.label ? [camera.toScreen(...shape.at)] : []));
  for (const shape of shapes) {
    if (shape.kind !== "label") continue;
    const at = camera.toScreen(...shape.at);
    if (taken.some(([x, y]) => Math.abs(x - at[0]) < ROOM && Math.abs(y - at[1]) < ROOM / 1.6)) continue;
    taken.push(at);
    pen.text([at[0], at[1] + 19], shape.text, css(palette.ink, 0.75), css(palette.paper), true);
  }
}

function drawAll(shapes: Shape[], camera: Camera, palette: Palette, pen: Pen): void {
  drawLabels(shapes, camera, palette, pen);
  for (const shape of shapes) if (shape.kind === "path") drawPath(shape, camera, palette, pen);
  for (const shape of shapes) if (shape.kind === "mark") drawMark(shape, camera, palette, pen);
}

const FONT = "600 13px system-ui, sans-serif";
const SMALL_FONT = "11px system-ui, sans-serif";

class CanvasPen implements Pen {
  constructor(private readonly on: CanvasRenderingContext2D) {
    on.lineCap = "round";
    on.lineJoin = "round";
    on.textAlign = "center";
  }

  line(points: Point[], colour: string, width: number, dash: number[]): void {
    this.trace(points);
    this.on.setLineDash(dash);
    this.stroke(colour, width);
  }

  polygon(points: Point[], fill: string, rim: string): void {
    this.trace(points);
    this.on.closePath();
    this.on.setLineDash([]);
    this.stroke(rim, 2);
    this.on.fillStyle = fill;
    this.on.fill();
  }

  circle(at: Point, radius: number, fill: string, line: string, width: number): void {
    this.on.beginPath();
    this.on.arc(...at, radius, 0, 2 * Math.PI);
    this.on.setLineDash([]);
    if (fill !== "none") {
      this.on.fillStyle = fill;
      this.on.fill();
    }
    this.stroke(line, width);
  }

  text(at: Point, text: string, fill: string, halo: string, small = false): void {
    this.on.font = small ? SMALL_FONT : FONT;
    this.on.setLineDash([]);
    this.on.strokeStyle = halo;
    this.on.lineWidth = 4;
    this.on.strokeText(text, ...at);
    this.on.fillStyle = fill;
    this.on.fillText(text, ...at);
  }

  private trace(points: Point[]): void {
    this.on.beginPath();
    points.forEach((point, i) => (i ? this.on.lineTo(...point) : this.on.moveTo(...point)));
  }

  private stroke(colour: string, width: number): void {
    this.on.strokeStyle = colour;
    this.on.lineWidth = width;
    this.on.stroke();
  }
}

/** Draws shapes on a canvas with `ratio` pixels per CSS pixel. */
export function drawShapes(on: CanvasRenderingContext2D, shapes: Shape[], camera: Camera, palette: Palette, ratio: number): void {
  on.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawAll(shapes, camera, palette, new CanvasPen(on));
}

class SvgPen implements Pen {
  readonly parts: string[] = [];

  line(points: Point[], colour: string, width: number, dash: number[]): void {
    const dashed = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    this.parts.push(`<polyline points="${coordinates(points)}" fill="none" stroke="${colour}" stroke-width="${width}"${dashed} stroke-linecap="round" stroke-linejoin="round"/>`);
  }

  polygon(points: Point[], fill: string, rim: string): void {
    this.parts.push(`<polygon points="${coordinates(points)}" fill="${fill}" stroke="${rim}" stroke-width="1"/>`);
  }

  circle([x, y]: Point, radius: number, fill: string, line: string, width: number): void {
    this.parts.push(`<circle cx="${round(x)}" cy="${round(y)}" r="${radius}" fill="${fill}" stroke="${line}" stroke-width="${width}"/>`);
  }

  text([x, y]: Point, text: string, fill: string, halo: string, small = false): void {
    const font = small ? `font-size="11"` : `font-size="13" font-weight="600"`;
    this.parts.push(
      `<text x="${round(x)}" y="${round(y)}" text-anchor="middle" font-family="sans-serif" ${font} fill="${fill}" stroke="${halo}" stroke-width="4" paint-order="stroke">${escape(text)}</text>`,
    );
  }
}

const round = (value: number) => Math.round(value * 100) / 100;
const coordinates = (points: Point[]) => points.map(([x, y]) => `${round(x)},${round(y)}`).join(" ");
const escape = (text: string) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");

/** The shapes over the floor plan as an SVG file; `floor` is (n, 4) in world coordinates. */
export function writeSvg(title: string, shapes: Shape[], floor: Float32Array, camera: Camera, palette: Palette): string {
  const pen = new SvgPen();
  const wall = (colour: Rgb) => {
    for (let i = 0; i < floor.length; i += 4) {
      const ends: Point[] = [camera.toScreen(floor[i]!, floor[i + 1]!), camera.toScreen(floor[i + 2]!, floor[i + 3]!)];
      pen.line(ends, css(colour), 2, []);
    }
  };
  wall(palette.floor);
  drawAll(shapes, camera, palette, pen);
  const [w, h] = [round(camera.width), round(camera.height)];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}">`,
    `<title>${escape(title)}</title>`,
    `<rect width="${w}" height="${h}" fill="${css(palette.paper)}"/>`,
    ...pen.parts,
    "</svg>\n",
  ].join("\n");
}
