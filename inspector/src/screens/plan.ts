// Plan: the path of the planner.
import type { App } from "../app";
import { button, facts, h, table } from "../dom";
import { beliefBar, edgeLink, heading, link, nodeLink, stateTag, strip } from "../parts";
import { number, plural, steps, tries } from "../text";
import type { PlanFacts } from "../types";

/** Start and goal chosen so far, and how to choose the others. */
export function chooser(app: App): HTMLElement {
  const { from, to } = app.place;
  const end = (word: string, node: number | null) => h("span", {}, `${word} `, node === null ? "—" : nodeLink(app, node));
  const hint = from === null ? "Click the start on the map." : to === null ? "Now click the goal." : null;
  return h(
    "div",
    { class: "chooser" },
    h("p", {}, end("From", from), " ", end("to", to)),
    hint ? h("p", { class: "quiet" }, `${hint} With keys: select a node, then s for start or g for goal.`) : null,
    from !== null && to !== null
      ? h("div", { class: "actions" }, button("Swap", () => app.go({ from: to, to: from })), button("Clear", () => app.go({ from: null, to: null })))
      : null,
  );
}

export async function planScreen(app: App): Promise<Node[]> {
  const { from, to } = app.place;
  const head = [heading("Plan", "What will the agent do?"), chooser(app)];
  if (from === null || to === null) return head;
  const plan = await app.ask<PlanFacts>(`/api/plan?from=${from}&to=${to}`);
  if (plan.error) return [...head, h("p", { class: "notice" }, plan.error), link(app, { screen: "why" }, "Why?")];
  app.reveal(...plan.nodes);
  const rows = plan.legs.map((leg) => [
    edgeLink(app, leg.source, leg.target),
    number(leg.price),
    number(leg.weight),
    h("span", {}, tries(leg), leg.state ? stateTag(leg.state) : null, beliefBar(leg.belief)),
  ]);
  return [
    ...head,
    h("p", { class: "big", id: "cost" }, steps(plan.cost), h("small", {}, ` over ${plural(plan.legs.length, "edge")}`)),
    link(app, { screen: "why" }, "Why not a shorter path?"),
    h("h3", {}, "Expected images"),
    strip(app, plan.nodes, plan.images, plan.legs),
    h("h3", {}, "Evidence"),
    table("Edges in order", ["edge", "cost", "weight", "tries and belief"], rows, [1, 2]),
    facts([["waypoints", h("span", { id: "waypoints" }, plan.nodes.join(" → "))]]),
  ];
}
