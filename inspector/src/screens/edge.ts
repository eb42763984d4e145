// Edge: the evidence for and against an edge.
import { post } from "../api";
import type { App } from "../app";
import { confirmed } from "../confirm";
import { button, type Child, facts, h, table } from "../dom";
import { beliefBar, bothEnds, heading, link, stateTag } from "../parts";
import { writeToken } from "../token";
import { edgeName, number, plural, steps, tries, when, whole } from "../text";
import { type EdgeFacts, REMOVED } from "../types";

const none = () => [
  heading("Edge", "Can I trust it?"),
  h("p", {}, "Click an edge on the map, or find it with ", h("kbd", {}, "/"), " and, for example, 12 → 40."),
];

function ending(edge: EdgeFacts): [string, Child][] {
  if (edge.state !== REMOVED && !edge.guarded) return edge.rule ? [["rule", edge.rule]] : [];
  const event = edge.removed_event;
  const rows: [string, Child][] = [];
  if (edge.state === REMOVED) {
    rows.push(["removed", event ? `event ${whole(event.sequence)}, ${when(event.time)}` : edge.removed_at === null ? "before the first event in the log" : `record ${whole(edge.removed_at)}`]);
  }
  return [...rows, ["rule", edge.rule]];
}

/** Buttons that change the file; only with --write. */
function changes(app: App, edge: EdgeFacts): HTMLElement | null {
  if (!app.summary.write) return null;
  const token = writeToken();
  if (!token) return h("p", { class: "quiet" }, "To remove or restore edges, open the address that sgm inspect printed.");
  const verb = edge.state === REMOVED ? "restore" : "remove";
  const name = edgeName(edge.source, edge.target);
  const act = async () => {
    if (!(await confirmed(`${verb === "remove" ? "Remove" : "Restore"} edge ${name}?`, "This writes an event to the memory file.", verb))) return;
    try {
      await post(`/api/edge/${edge.source}/${edge.target}/${verb}`, token);
      await app.load();
      app.say(`Edge ${name} is ${verb}d.`);
      await app.show(true);
    } catch (fault) {
      app.say((fault as Error).message, "fault");
    }
  };
  return h("div", { class: "actions" }, button(verb === "remove" ? "Remove edge" : "Restore edge", () => void act(), { class: "danger" }));
}

function suspicion(app: App, edge: EdgeFacts): (Node | null)[] {
  if (!edge.suspicion) return [];
  const { rank, score, reasons } = edge.suspicion;
  return [
    h("h3", {}, "Suspicion"),
    h("p", {}, link(app, { screen: "suspects", suspect: Math.max(rank - 1, 0) }, `Rank ${whole(rank)}`), `, score ${number(score)}`),
    h("ul", {}, ...reasons.map((text) => h("li", {}, text))),
  ];
}

function history(edge: EdgeFacts): HTMLElement {
  if (!edge.events.length) return h("p", { class: "quiet" }, "The log has no events of this edge.");
  const rows = edge.events.map((event) => [
    whole(event.sequence), event.kind, when(event.time), event.episode === null || event.episode < 0 ? "" : whole(event.episode),
  ]);
  return table(`History: ${plural(rows.length, "event")}`, ["event", "kind", "time", "episode"], rows, [0, 3]);
}

export async function edgeScreen(app: App): Promise<Node[]> {
  const { edge: ends } = app.place;
  if (!ends) return none();
  const [u, v] = ends;
  const edge = await app.ask<EdgeFacts>(`/api/edge/${u}/${v}`);
  app.reveal(u, v);
  return [
    heading(`Edge ${edgeName(u, v)}`, "Can I trust it?"),
    bothEnds(app, u, v, edge.images),
    changes(app, edge),
    facts([
      ["state", stateTag(edge.state)],
      ...ending(edge),
      ["weight", steps(edge.weight)],
      ["cost", steps(edge.price)],
      ["tries", whole(edge.successes + edge.failures)],
      ["successes", `${whole(edge.successes)} (${tries(edge)})`],
      ["belief", beliefBar(edge.belief)],
      ["failures in a row", whole(edge.streak)],
      ["walked in an episode", edge.walked ? `yes${edge.walked_steps ? `, in ${steps(edge.walked_steps)}` : ""}` : "no"],
      ["reverse edge", link(app, { edge: [v, u] }, edgeName(v, u))],
    ]),
    ...suspicion(app, edge),
    history(edge),
  ].filter((one): one is HTMLElement => one !== null);
}
