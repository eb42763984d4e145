// Search for a node, an edge, or nodes with a value of an attribute.
import type { App } from "./app";
import { h, need } from "./dom";
import { heading, nodeLink } from "./parts";
import type { Found } from "./types";

function results(app: App, query: string, found: Found): Node[] {
  const item = (link: HTMLElement) => h("li", {}, link);
  return [
    heading("Found", query),
    h("p", {}, found.text),
    h("ul", {}, ...found.nodes.slice(0, 200).map((i) => item(nodeLink(app, i)))),
  ];
}

async function find(app: App, query: string): Promise<void> {
  const found = await app.ask<Found>(`/api/find?q=${encodeURIComponent(query)}`);
  if (found.nodes.length + found.edges.length === 0) return app.say(found.text || `Nothing found for “${query}”.`);
  app.quiet();
  if (found.nodes.length === 1 && !found.edges.length) return app.go({ screen: "node", node: found.nodes[0]!, at: null });
  if (found.edges.length) return app.go({ screen: "edge", edge: found.edges[0]!, at: null });
  app.mark(found.nodes.slice(0, 500).map((i) => ({ kind: "mark", at: app.view.place(i), form: "ring", colour: "chosen", radius: 7 })));
  app.drawShapes();
  app.reveal(...found.nodes);
  need("panel").replaceChildren(...results(app, query, found));
}

export function listenToFind(app: App): void {
  const query = need<HTMLInputElement>("query");
  need("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = query.value.trim();
    if (!text) return;
    find(app, text).then(
      () => need("panel").focus({ preventScroll: true }),
      (fault: Error) => app.say(fault.message, "fault"),
    );
  });
}
