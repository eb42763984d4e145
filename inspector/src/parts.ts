// Elements that several screens use: images, belief, links to nodes and edges.
import type { App } from "./app";
import { type Child, h, s } from "./dom";
import type { Place } from "./place";
import { format } from "./place";
import { edgeName, number, share, stateName, steps, tries } from "./text";
import type { Belief, Edge } from "./types";

/** A link to the current place with `change`. */
export function link(app: App, change: Partial<Place>, text: Child, more: Record<string, string> = {}): HTMLAnchorElement {
  return h("a", { href: format({ ...app.place, ...change }), "data-key": JSON.stringify(change), ...more }, text);
}

export function nodeLink(app: App, node: number): HTMLAnchorElement {
  return link(app, { screen: "node", node, at: null }, String(node));
}

export function edgeLink(app: App, source: number, target: number): HTMLAnchorElement {
  return link(app, { screen: "edge", edge: [source, target], at: null }, edgeName(source, target), { class: "edge" });
}

/** An image with its caption, or a placeholder if there is none. */
export function picture(url: string | null | undefined, alt: string, caption: Child): HTMLElement {
  const tile = () => h("div", { class: "tile" }, "no image");
  let shown: HTMLElement = tile();
  if (url) {
    const image = h("img", { src: url, alt, loading: "lazy", decoding: "async" });
    image.addEventListener("error", () => image.replaceWith(tile()));
    shown = image;
  }
  return h("figure", {}, shown, h("figcaption", {}, caption));
}

/** Both ends of an edge, side by side. */
export function bothEnds(app: App, source: number, target: number, images: (string | null)[]): HTMLElement {
  const end = (node: number, word: string, url: string | null | undefined) =>
    picture(url, `Image of the ${word} node ${node}`, h("span", {}, `${word} `, nodeLink(app, node)));
  return h(
    "div",
    { class: "pair" },
    end(source, "source", images[0]),
    h("span", { class: "arrow", "aria-hidden": "true" }, "→"),
    end(target, "target", images[1]),
  );
}

/** The address of a node's image; null if the memory has no images. */
export function imageOf(app: App, node: number): string | null {
  return app.summary.images && node >= 0 ? `/api/image/${node}?v=${encodeURIComponent(app.summary.version)}` : null;
}

/** Belief that the edge works: a bar from 0 to 1 with its interval. */
export function beliefBar(belief: Belief | null | undefined): HTMLElement {
  if (!belief) return h("span", { class: "quiet" }, "no belief");
  const { mean, low, high } = belief;
  const bar = s(
    "svg",
    { class: "belief", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "track", x: 0, y: 4, width: 100, height: 2 }),
    s("rect", { class: "interval", x: 100 * low, y: 2, width: Math.max(100 * (high - low), 1), height: 6 }),
    s("rect", { class: "mean", x: Math.min(100 * mean, 98), y: 0, width: 2, height: 10 }),
  );
  return h("span", { class: "beliefs" }, bar, h("span", {}, `${share(mean)} (${share(low)} to ${share(high)})`));
}

export function stateTag(state: number): HTMLElement {
  const sign = ["●", "◆", "✕", "○", "–"][state] ?? "";
  return h("span", { class: `tag state-${state}` }, `${sign} ${stateName(state)}`);
}

/** Rows of a table of edges: name, weight, cost, tries, state. */
export function edgeRow(app: App, edge: Edge): Child[] {
  return [
    edgeLink(app, edge.source, edge.target), number(edge.weight), number(edge.price), tries(edge), stateTag(edge.state),
  ];
}

export const EDGE_HEAD = ["edge", "weight", "cost", "tries", "state"];
export const EDGE_NUMBERS = [1, 2];

export function heading(title: string, question: string): HTMLElement {
  return h("hgroup", {}, h("h2", { tabindex: -1 }, title), h("p", {}, question));
}

/** The waypoints of a path with their images, in a strip, each with the edge that leads to it. */
export function strip(app: App, nodes: number[], images: (string | null)[], legs: Edge[]): HTMLElement {
  const item = (node: number, i: number) => {
    const leg = legs[i - 1];
    const text = i === 0 ? "start" : i === nodes.length - 1 ? "goal" : `waypoint ${i}`;
    return h(
      "li",
      {},
      picture(images[i], `Image of node ${node}`, h("span", {}, `${text} `, nodeLink(app, node))),
      leg ? h("p", { class: "quiet" }, `${steps(leg.price)}, ${tries(leg)}`) : null,
    );
  };
  return h("ol", { class: "strip", tabindex: 0, "aria-label": "Waypoints in order" }, ...nodes.map(item));
}
