// Compare: edges that differ between two memories.
import type { App } from "../app";
import { facts, h, table } from "../dom";
import type { Shape } from "../map/shapes";
import { edgeLink, heading } from "../parts";
import { number, shortPath, whole } from "../text";
import type { Comparison } from "../types";

function shapes(app: App, found: Comparison): Shape[] {
  const line = (u: number, v: number, look: Pick<Shape & { kind: "path" }, "colour" | "width" | "dash">): Shape => ({
    kind: "path", points: [app.view.place(u), app.view.place(v)], arrows: true, ...look,
  });
  return [
    ...found.repriced.map(([u, v]) => line(u, v, { colour: "mixed", width: 2, dash: [2, 4] })),
    ...found.removed.map(([u, v]) => line(u, v, { colour: "failed", width: 2.5, dash: [8, 6] })),
    ...found.added.map(([u, v]) => line(u, v, { colour: "reached", width: 3 })),
  ];
}

export async function compareScreen(app: App): Promise<Node[]> {
  const head = heading("Compare", "What did cleanup change?");
  if (!app.summary.compare) {
    return [head, h("p", { class: "notice" }, "Only one memory is open. To compare it with another of the same stream, give both: sgm inspect FIRST SECOND")];
  }
  const found = await app.ask<Comparison>("/api/compare");
  const names = h("p", {}, h("strong", {}, shortPath(app.summary.name)), " → ", h("strong", {}, shortPath(app.summary.compare.name)));
  if (!found.same_stream) return [head, names, h("p", { class: "notice" }, found.text)];
  app.mark(shapes(app, found));
  const pairs = (title: string, list: [number, number][]) =>
    table(`${title}: ${whole(list.length)} shown`, ["edge"], list.slice(0, 200).map(([u, v]) => [edgeLink(app, u, v)]));
  const prices = found.repriced.slice(0, 200).map(([u, v, before, after]) => [edgeLink(app, u, v), number(before), number(after)]);
  return [
    head,
    names,
    h("p", {}, found.text),
    facts(Object.entries(found.counts).map(([name, count]) => [name === "repriced" ? "changed cost" : name, whole(count)])),
    h("p", { class: "quiet" }, "On the map: added edges are solid, removed ones dashed, ones with a changed cost dotted."),
    pairs("Added", found.added),
    pairs("Removed", found.removed),
    table(`Changed cost: ${whole(found.repriced.length)} shown`, ["edge", "before", "after"], prices, [1, 2]),
  ];
}
