// Components: where the graph is disconnected.
import type { App } from "../app";
import { h, table } from "../dom";
import type { Shape } from "../map/shapes";
import { edgeLink, heading, link, nodeLink } from "../parts";
import { tries, whole } from "../text";
import type { ComponentList } from "../types";

const CUT_SHOWN = 300;

function shapes(app: App, list: ComponentList): Shape[] {
  const { component } = app.place;
  const cut = list.cut.filter((one) => component === null || one.from_component === component || one.to_component === component);
  const lines: Shape[] = cut.slice(0, CUT_SHOWN).map(({ edge }) => ({
    kind: "path", points: [app.view.place(edge.source), app.view.place(edge.target)], colour: "removed", width: 2.5, dash: [6, 5], arrows: true,
  }));
  if (component === null) return lines;
  const rings: Shape[] = [];
  for (let i = 0; i < app.graph.component.length && rings.length < CUT_SHOWN; i++) {
    if (app.graph.component[i] === component) rings.push({ kind: "mark", at: app.view.place(i), form: "ring", colour: "chosen", radius: 6 });
  }
  return component === 0 ? lines : [...lines, ...rings];
}

function samples(app: App, nodes: number[], size: number): HTMLElement {
  const links = nodes.slice(0, 6).flatMap((node, i) => (i ? [", ", nodeLink(app, node)] : [nodeLink(app, node)]));
  return h("span", {}, ...links, size > 6 ? " …" : null);
}

export async function componentsScreen(app: App): Promise<Node[]> {
  const list = await app.ask<ComponentList>("/api/components");
  app.mark(shapes(app, list));
  const chosen = list.components.find(({ id }) => id === app.place.component);
  if (chosen) app.reveal(...chosen.sample);
  const rows = list.components.map(({ id, size, sample }) => [
    link(app, { component: id }, String(id), id === app.place.component ? { "aria-current": "true" } : {}), whole(size), samples(app, sample, size),
  ]);
  const cut = list.cut.map(({ edge, from_component, to_component }) => [
    edgeLink(app, edge.source, edge.target), `${from_component} → ${to_component}`, tries(edge),
  ]);
  return [
    heading("Components", "Where is the graph disconnected?"),
    h("p", {}, list.text),
    table("Strongly connected components, largest first", ["component", "nodes", "some of them"], rows, [1]),
    cut.length
      ? table("Removed edges that connected components", ["edge", "components", "tries"], cut)
      : h("p", { class: "quiet" }, "No removed edge connected two of these components."),
  ];
}
