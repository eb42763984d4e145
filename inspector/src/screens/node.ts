// Node: what did it see here.
import type { App } from "../app";
import { button, facts, h, table } from "../dom";
import { EDGE_HEAD, EDGE_NUMBERS, edgeRow, heading, link, picture } from "../parts";
import { number, plural, value } from "../text";
import type { NodeFacts } from "../types";

const none = () => [
  heading("Node", "What was seen here?"),
  h("p", {}, "Click a node on the map, or find it by its number with ", h("kbd", {}, "/"), "."),
];

function merged(node: NodeFacts): HTMLElement {
  const shown = node.observations.length;
  const rest = node.visits - shown;
  return h(
    "details",
    { open: shown <= 24 },
    h("summary", {}, `${plural(node.visits, "observation")} merged here`),
    h("p", { class: "numbers" }, node.observations.join(" · "), rest > 0 ? ` and ${plural(rest, "more", "more")}` : null),
  );
}

export async function nodeScreen(app: App): Promise<Node[]> {
  const { node: id } = app.place;
  if (id === null) return none();
  const node = await app.ask<NodeFacts>(`/api/node/${id}`);
  app.reveal(id);
  const edges = (title: string, list: NodeFacts["in"]) =>
    table(`${title}: ${list.length}`, EDGE_HEAD, list.map((edge) => edgeRow(app, edge)), EDGE_NUMBERS);
  return [
    heading(`Node ${id}`, "What was seen here?"),
    picture(node.image, `Image of node ${id}`, node.stream === null ? "" : `observation ${node.stream} of the stream`),
    h(
      "div",
      { class: "actions" },
      button("Start here", () => app.go({ screen: "plan", from: id, to: app.place.from === id ? null : app.place.to })),
      button("Goal here", () => app.go({ screen: "plan", to: id })),
    ),
    facts([
      ["component", link(app, { screen: "components", component: node.component }, String(node.component))],
      ["position on the map", node.position ? node.position.map(number).join(", ") : "unknown"],
      ...Object.entries(node.attributes).map(([name, one]): [string, string] => [name, value(one)]),
    ]),
    merged(node),
    edges("Edges out", node.out),
    edges("Edges in", node.in),
  ];
}
