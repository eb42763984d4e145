// The legend of the map: colours, shapes and dashes.
import { h, s } from "./dom";
import { CIRCLE, componentShape, DIAMOND, GUARDED_STROKE, range, REMOVED_STROKE, SQUARE, type Stroke, strokes, TRIANGLE } from "./map/paint";
import { css, type Palette, type Rgb } from "./map/palette";
import { DASHES } from "./map/plain";
import type { ColourMode } from "./place";
import { plural, whole } from "./text";
import { type Graph, GUARDED, NOT_THERE, REMOVED } from "./types";

function lineSample(stroke: Stroke): SVGElement {
  return s(
    "svg",
    { class: "sample", viewBox: "0 0 34 12", "aria-hidden": "true" },
    s("line", {
      x1: 1, y1: 6, x2: 26, y2: 6, stroke: css(stroke.colour), "stroke-width": Math.max(stroke.width, 1.5),
      "stroke-dasharray": DASHES[stroke.dash]!.join(" ") || null,
    }),
    s("polygon", { points: "25,2 33,6 25,10", fill: css(stroke.colour) }),
  );
}

const CORNERS: Record<number, string> = {
  [SQUARE]: "4,2 12,2 12,10 4,10", [DIAMOND]: "8,0 14,6 8,12 2,6", [TRIANGLE]: "8,1 14,11 2,11",
};

function shapeSample(shape: number, colour: Rgb): SVGElement {
  return s(
    "svg",
    { class: "sample", viewBox: "0 0 16 12", "aria-hidden": "true" },
    shape === CIRCLE
      ? s("circle", { cx: 8, cy: 6, r: 4.5, fill: css(colour) })
      : s("polygon", { points: CORNERS[shape]!, fill: css(colour) }),
  );
}

const line = (sample: SVGElement, text: string) => h("li", {}, sample, text);

function componentLines(graph: Graph, palette: Palette): HTMLElement[] {
  const sizes = new Map<number, number>();
  for (const part of graph.component) if (part !== NOT_THERE) sizes.set(part, (sizes.get(part) ?? 0) + 1);
  const largest = [...sizes].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 4);
  const lines = largest.map(([part, size]) => {
    return line(shapeSample(componentShape(part), palette.components[part % palette.components.length]!), `${part}: ${plural(size, "node")}`);
  });
  const rest = sizes.size - largest.length;
  return rest > 0 ? [...lines, h("li", { class: "quiet" }, `and ${plural(rest, "smaller component")}`)] : lines;
}

function rampLine(values: Uint32Array, palette: Palette, low: string, high: string): HTMLElement {
  const { low: least, high: most } = range(values);
  const steps = palette.ramp.map((colour, i) => s("rect", { x: 14 * i, y: 0, width: 14, height: 10, fill: css(colour) }));
  const bar = s("svg", { class: "ramp", viewBox: `0 0 ${14 * steps.length} 10`, "aria-hidden": "true" }, ...steps);
  return h("li", {}, `${whole(least)} ${low}`, bar, `${whole(most)} ${high}`);
}

function modeLines(graph: Graph, mode: ColourMode, palette: Palette): HTMLElement[] {
  if (mode === "evidence") return strokes(palette).map((stroke) => line(lineSample(stroke), stroke.name));
  if (mode === "component") return componentLines(graph, palette);
  if (mode === "age") return [rampLine(graph.age, palette, "(oldest observation)", "(newest)")];
  return [rampLine(graph.visits, palette, "observations (small)", "(large)")];
}

export function legend(graph: Graph, mode: ColourMode, palette: Palette, removed: boolean): HTMLElement {
  const lines = modeLines(graph, mode, palette);
  if (graph.state.includes(GUARDED)) lines.push(line(lineSample(GUARDED_STROKE(palette)), "guarded: failed, kept"));
  if (removed && graph.state.includes(REMOVED)) lines.push(line(lineSample(REMOVED_STROKE(palette)), "removed"));
  return h("ul", { "aria-label": `Legend: colour by ${mode}` }, ...lines);
}
