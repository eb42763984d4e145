// Why: why the plan is not the shortest path.
import type { App } from "../app";
import { h, table } from "../dom";
import type { Path, Shape } from "../map/shapes";
import { edgeLink, heading, strip } from "../parts";
import { number, steps, tries, whole } from "../text";
import type { Way, WhyFacts } from "../types";
import { chooser } from "./plan";

const CAUSES: Record<string, string> = {
  removed: "✕ removed", failed: "▼ failed", untried: "○ not tried", tried: "◐ uncertain", guarded: "◆ guarded", weight: "= same cost",
};

function bothScales(why: WhyFacts): HTMLElement {
  const row = (name: string, way: Way | null) =>
    way ? [name, number(way.weight), number(way.price), whole(way.nodes.length - 1)] : [name, "no path", "no path", ""];
  return table("Weight and cost of both paths, in steps", ["path", "weight", "cost", "edges"], [
    row("━ chosen by cost", why.chosen),
    row("┅ shortest by weight", why.shortest),
  ], [1, 2, 3]);
}

function causes(app: App, why: WhyFacts): Node[] {
  if (why.same || !why.causes.length) return [];
  const rows = why.causes.map(({ kind, edge, steps: share, text }) => [
    h("span", { class: `tag cause-${kind}` }, CAUSES[kind] ?? kind),
    edge ? edgeLink(app, edge.source, edge.target) : "",
    number(share),
    h("span", {}, text, edge ? h("small", { class: "quiet" }, ` ${tries(edge)}`) : null),
  ]);
  rows.push([h("strong", {}, "difference"), "", h("strong", { id: "difference" }, number(why.difference)), ""]);
  return [h("h3", {}, "Causes"), table("Steps each cause adds", ["cause", "edge", "steps", "explanation"], rows, [2])];
}

function pictures(app: App, title: string, way: Way | null): Node[] {
  if (!app.summary.images || !way?.images || !way.legs) return [];
  return [h("h3", {}, title), strip(app, way.nodes, way.images, way.legs)];
}

/** The shortest path, labelled on an edge that the plan does not use. */
function shapes(app: App, chosen: number[], shortest: number[]): Shape[] {
  const place = (i: number) => app.view.place(i);
  const look = { kind: "path", colour: "other", width: 5, dash: [10, 8], arrows: true } satisfies Omit<Path, "points">;
  const legs = new Set(chosen.slice(1).map((node, i) => `${chosen[i]}-${node}`));
  const apart = shortest.map((_, i) => i).filter((i) => i > 0 && !legs.has(`${shortest[i - 1]}-${shortest[i]}`));
  const own = apart[apart.length >> 1] ?? 0;
  const way: Shape = { ...look, points: shortest.map(place) };
  if (own < 1) return [way];
  return [way, { ...look, points: [place(shortest[own - 1]!), place(shortest[own]!)], label: "shortest by weight" }];
}

export async function whyScreen(app: App): Promise<Node[]> {
  const { from, to } = app.place;
  const head = [heading("Why", "Why not a shorter path?"), chooser(app)];
  if (from === null || to === null) return head;
  const why = await app.ask<WhyFacts>(`/api/why?from=${from}&to=${to}`);
  const shortest = why.shortest?.nodes ?? [];
  if (!why.same && shortest.length > 1) app.mark(shapes(app, why.chosen?.nodes ?? [], shortest));
  app.reveal(...(why.chosen?.nodes ?? []), ...shortest);
  const difference = why.difference === null ? null : h("p", { class: "big" }, why.same ? "The same path" : `${steps(why.difference)} `, why.same ? null : h("small", {}, "difference"));
  return [
    ...head,
    ...(difference ? [difference] : []),
    h("p", { id: "because" }, why.error ?? why.text),
    bothScales(why),
    ...causes(app, why),
    ...pictures(app, "Images on the chosen path", why.chosen),
    ...(why.same ? [] : pictures(app, "Images on the shortest path", why.shortest)),
  ];
}
