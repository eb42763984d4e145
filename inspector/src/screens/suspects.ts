// Suspects: edges that may be false.
import type { App } from "../app";
import { button, h, table } from "../dom";
import { bothEnds, edgeLink, heading, imageOf, link, stateTag } from "../parts";
import { edgeName, number, whole } from "../text";
import type { Suspect, SuspectList } from "../types";

export const fetchSuspects = (app: App) => app.ask<SuspectList>("/api/suspects?limit=200");

/** Goes `step` suspects forward; from another screen it opens the current suspect first. */
export async function nextSuspect(app: App, step: number): Promise<void> {
  const { suspects } = await fetchSuspects(app);
  if (!suspects.length) return app.go({ screen: "suspects" });
  const at = app.place.suspect;
  const next = app.place.screen !== "suspects" || at === null ? (at ?? 0) : at + step;
  app.go({ screen: "suspects", suspect: (next + suspects.length) % suspects.length }, { replace: app.place.screen === "suspects" });
}

function current(app: App, list: SuspectList, at: number): Node[] {
  const { source, target, score, rank, reasons, state } = list.suspects[at]!;
  app.mark(app.edgeShapes(source, target));
  app.reveal(source, target);
  return [
    h("h3", { id: "suspect" }, `Suspect ${whole(rank)} of ${whole(list.total)}: ${edgeName(source, target)}`),
    bothEnds(app, source, target, [imageOf(app, source), imageOf(app, target)]),
    h("p", {}, stateTag(state), ` score ${number(score)}, `, link(app, { screen: "edge", edge: [source, target] }, "open the edge")),
    h("ul", { class: "reasons" }, ...reasons.map((text) => h("li", {}, text))),
    h(
      "div",
      { class: "actions" },
      button("Previous (p)", () => void nextSuspect(app, -1)),
      button("Next (n)", () => void nextSuspect(app, 1)),
    ),
  ];
}

export async function suspectsScreen(app: App): Promise<Node[]> {
  const list = await fetchSuspects(app);
  const head = [heading("Suspects", "Which edges may be false?")];
  const how = h("p", { class: "quiet" }, list.text);
  if (!list.suspects.length) return [...head, h("p", { class: "notice" }, "No edge is suspicious."), how];
  const at = Math.min(app.place.suspect ?? 0, list.suspects.length - 1);
  const row = (one: Suspect, i: number) => [
    link(app, { suspect: i }, whole(one.rank), i === at ? { "aria-current": "true" } : {}),
    edgeLink(app, one.source, one.target),
    number(one.score),
    one.reasons[0] ?? "",
    stateTag(one.state),
  ];
  return [
    ...head,
    ...current(app, list, at),
    how,
    table(`The first ${whole(list.suspects.length)} of ${whole(list.total)}`, ["rank", "edge", "score", "reason", "state"], list.suspects.map(row), [0, 2]),
  ];
}
