// Mouse, touch and keys on the map.
import { edgeAt, nodeAt, towards } from "./pick";
import type { MapView } from "./view";

export interface Hands {
  node(i: number): void;
  edge(i: number): void;
  hover(node: number, edge: number, x: number, y: number): void;
  selected(): number | null;
}

const CLICK = 5; // largest movement of a click, pixels
const STEP = 80; // pixels that an arrow key pans

export function listen(surface: HTMLElement, view: MapView, hands: Hands): void {
  const down = new Map<number, [number, number]>();
  let moved = 0;

  surface.addEventListener("pointerdown", (event) => {
    surface.setPointerCapture(event.pointerId);
    down.set(event.pointerId, [event.offsetX, event.offsetY]);
    if (down.size === 1) moved = 0;
    view.hold();
  });

  surface.addEventListener("pointermove", (event) => {
    const before = down.get(event.pointerId);
    const now: [number, number] = [event.offsetX, event.offsetY];
    if (!before) return point(view, hands, ...now);
    const others = [...down].filter(([id]) => id !== event.pointerId);
    const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
    moved += Math.hypot(dx, dy);
    if (others.length) pinch(view, before, now, others[0]![1]);
    else if (moved > CLICK) view.camera.pan(dx, dy);
    down.set(event.pointerId, now);
    view.request();
  });

  const up = (event: PointerEvent) => {
    if (!down.delete(event.pointerId)) return;
    if (event.type === "pointerup" && moved <= CLICK && !down.size) choose(view, hands, event.offsetX, event.offsetY);
  };
  surface.addEventListener("pointerup", up);
  surface.addEventListener("pointercancel", up);
  surface.addEventListener("pointerleave", () => hands.hover(-1, -1, 0, 0));
  surface.addEventListener("wheel", (event) => {
    event.preventDefault();
    view.hold();
    view.camera.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.offsetX, event.offsetY);
    view.request();
  }, { passive: false });
  surface.addEventListener("keydown", (event) => key(event, view, hands));
}

function pinch(view: MapView, before: [number, number], now: [number, number], other: [number, number]): void {
  const was = Math.hypot(before[0] - other[0], before[1] - other[1]);
  const is = Math.hypot(now[0] - other[0], now[1] - other[1]);
  view.camera.pan((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
  if (was > 0) view.camera.zoom(is / was, (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
}

function choose(view: MapView, hands: Hands, x: number, y: number): void {
  if (!view.graph) return;
  const node = nodeAt(view.graph, view.paint, view.camera, x, y);
  if (node >= 0) return hands.node(node);
  const edge = edgeAt(view.graph, view.paint, view.camera, x, y);
  if (edge >= 0) hands.edge(edge);
}

function point(view: MapView, hands: Hands, x: number, y: number): void {
  if (!view.graph) return;
  const node = nodeAt(view.graph, view.paint, view.camera, x, y);
  hands.hover(node, node >= 0 ? -1 : edgeAt(view.graph, view.paint, view.camera, x, y), x, y);
}

const ARROWS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1],
};

function key(event: KeyboardEvent, view: MapView, hands: Hands): void {
  if (event.ctrlKey || event.metaKey || event.altKey || !view.graph) return;
  const { camera } = view;
  const arrow = ARROWS[event.key];
  const middle: [number, number] = [camera.width / 2, camera.height / 2];
  view.hold();
  if (arrow && event.shiftKey) {
    const from = hands.selected();
    const next = from === null ? nodeAt(view.graph, view.paint, camera, ...middle, Infinity) : towards(view.graph, view.paint, from, ...arrow);
    if (next >= 0) hands.node(next);
  } else if (arrow) camera.pan(-arrow[0] * STEP, arrow[1] * STEP);
  else if (event.key === "+" || event.key === "=") camera.zoom(1.4, ...middle);
  else if (event.key === "-") camera.zoom(1 / 1.4, ...middle);
  else if (event.key === "Enter") {
    const node = nodeAt(view.graph, view.paint, camera, ...middle, Infinity);
    if (node >= 0) hands.node(node);
  } else return;
  event.preventDefault();
  view.request();
}
