// Map: an overview of the memory.
import type { App } from "../app";
import { facts, h } from "../dom";
import { heading, link } from "../parts";
import { plural, value, whole } from "../text";

const notices = (title: string, lines: string[]) =>
  lines.length ? [h("h3", {}, title), h("ul", { class: "notice" }, ...lines.map((text) => h("li", {}, text)))] : [];

const settingsList = (given: Record<string, unknown>) =>
  facts(Object.entries(given).map(([name, one]) => [name, value(one)]));

export async function mapScreen(app: App): Promise<Node[]> {
  const { summary } = app;
  return [
    heading("Map", "What does the memory look like?"),
    ...notices("Left out", summary.limits),
    ...notices("Please note", summary.warnings),
    facts([
      ["nodes", whole(summary.nodes)],
      ["edges in use", whole(summary.edges)],
      ["removed", whole(summary.removed)],
      ["guarded", whole(summary.guarded)],
      ["observations", whole(summary.observations)],
      ["components", link(app, { screen: "components" }, `${whole(summary.components)}, the largest with ${plural(summary.largest_component, "node")}`)],
      ["positions", summary.layout.kind === "positions" ? `from attribute “${summary.layout.attribute}”` : summary.layout.text],
      ["images", summary.images ? "yes" : "none in this memory"],
      ["episodes", summary.episodes ? link(app, { screen: "episode" }, plural(summary.episodes, "episode")) : "none stored"],
    ]),
    h("p", {}, "Click a node or an edge. On Plan, two clicks choose start and goal. ", h("kbd", {}, "?"), " lists the keys."),
    h("details", {}, h("summary", {}, "Settings of the memory"), settingsList(summary.settings)),
    h("details", {}, h("summary", {}, "Cleanup policy"), settingsList(summary.policy)),
    h(
      "details",
      {},
      h("summary", {}, "Attributes of nodes"),
      facts(summary.attributes.map(({ name, shape, dtype }) => [name, `${dtype}, ${shape.join(" × ")}`])),
    ),
  ];
}
