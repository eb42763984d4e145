// Episode: an evaluation or cleanup episode, step by step.
import type { App } from "../app";
import { button, facts, h, table } from "../dom";
import type { Point, Shape } from "../map/shapes";
import { edgeLink, heading, imageOf, link, nodeLink, picture } from "../parts";
import { number, plural, whole } from "../text";
import type { EpisodeFacts, EpisodeLine, EpisodeStep } from "../types";

const result = (success: boolean | null) => (success === null ? "—" : success ? "✓ reached" : "✕ not reached");

async function list(app: App): Promise<Node[]> {
  const { episodes } = await app.ask<{ episodes: EpisodeLine[]; text?: string }>("/api/episodes");
  if (!episodes.length) return [h("p", { class: "notice" }, "This memory has no stored episodes. Runs store some of their evaluation and cleanup episodes.")];
  const rows = episodes.map((one) => [
    link(app, { episode: String(one.id), step: 0 }, one.title), one.kind, result(one.success), whole(one.steps),
  ]);
  return [table(plural(episodes.length, "episode"), ["episode", "kind", "goal", "steps"], rows, [3])];
}

/** One episode with a slider over its steps. */
class Walk {
  private readonly range: HTMLInputElement;
  private readonly title = h("p", { class: "big", id: "step" });
  private readonly seen = h("div", { class: "pair" });
  private readonly about = h("div");

  constructor(
    private readonly app: App,
    private readonly episode: EpisodeFacts,
    private at: number,
  ) {
    const last = episode.steps.length - 1;
    this.at = Math.min(Math.max(at, 0), Math.max(last, 0));
    this.range = h("input", { type: "range", min: 0, max: Math.max(last, 0), value: this.at, "aria-label": "Step", "data-key": "steps", input: () => this.move(Number(this.range.value)) });
  }

  elements(): Node[] {
    this.move(this.at, true);
    const places = this.episode.steps.map((step) => this.position(step)).filter((one) => one !== null);
    const planned = (this.episode.plans ?? []).flatMap(({ nodes }) => nodes.map((i) => this.app.view.place(i)));
    this.app.view.reveal([...places, ...planned]);
    const hop = (text: string, by: number) => button(text, () => this.move(this.at + by));
    return [
      this.title,
      this.range,
      h("div", { class: "actions" }, hop("−10", -10), hop("−1", -1), hop("+1", 1), hop("+10", 10)),
      this.seen,
      this.about,
    ];
  }

  private position(step: EpisodeStep): Point | null {
    if (step.position) return step.position;
    return step.node !== null && step.node >= 0 ? this.app.view.place(step.node) : null;
  }

  private move(to: number, first = false): void {
    const last = this.episode.steps.length - 1;
    this.at = Math.min(Math.max(to, 0), last);
    const step = this.episode.steps[this.at]!;
    this.range.value = String(this.at);
    this.range.setAttribute("aria-valuetext", `step ${step.t} of ${last}`);
    this.title.replaceChildren(`Step ${whole(step.t)}`, h("small", {}, ` of ${whole(last)}`));
    this.seen.replaceChildren(...this.pictures(step));
    this.about.replaceChildren(this.facts(step));
    if (!first) this.app.go({ step: this.at }, { replace: true, quiet: true });
    this.app.mark(this.shapes(step));
    this.app.drawShapes();
  }

  /** The robot's image at this step, or the latest one before it; and the image of its waypoint. */
  private pictures(step: EpisodeStep): Node[] {
    const latest = this.episode.steps.slice(0, this.at + 1).reverse().find((one) => one.image);
    const caption = !latest || latest.t === step.t ? "robot's image" : `robot's image at step ${latest.t}`;
    const wanted = step.waypoint !== null && step.waypoint >= 0 ? step.waypoint : null;
    return [
      picture(latest?.image, "Image of the robot's camera", caption),
      h("span", { class: "arrow", "aria-hidden": "true" }, "→"),
      wanted === null
        ? picture(this.episode.goal?.image, "The goal", "goal")
        : picture(imageOf(this.app, wanted), `Image of node ${wanted}`, h("span", {}, "waypoint ", nodeLink(this.app, wanted))),
    ];
  }

  private facts(step: EpisodeStep): HTMLElement {
    const { gave_up: end } = this.episode;
    const node = (i: number | null) => (i === null || i < 0 ? "none" : nodeLink(this.app, i));
    const [u, v] = end?.edge ?? [null, null];
    const last = v === null || v < 0 ? [] : u === null || u < 0 ? [", on the way to node ", nodeLink(this.app, v)] : [", on edge ", edgeLink(this.app, u, v)];
    return facts([
      ["position", step.position ? step.position.map(number).join(", ") : "unknown"],
      ["last waypoint reached", node(step.node)],
      ["next waypoint", step.waypoint === null || step.waypoint < 0 ? "the goal" : nodeLink(this.app, step.waypoint)],
      ["what happened", step.event || "—"],
      ["gave up", end ? [`at step ${whole(end.t)}`, ...last] : "no"],
    ]);
  }

  private shapes(step: EpisodeStep): Shape[] {
    const { steps, gave_up, goal } = this.episode;
    const walked = steps.slice(0, this.at + 1).map((one) => this.position(one)).filter((one) => one !== null);
    const all = steps.map((one) => this.position(one)).filter((one) => one !== null);
    const shapes: Shape[] = [{ kind: "path", points: all, colour: "edge", width: 1.5, dash: [2, 4] }, { kind: "path", points: walked, colour: "reached", width: 3 }];
    const plan = this.episode.plans?.filter((one) => one.t <= step.t).at(-1)?.nodes ?? [];
    shapes.push({ kind: "path", points: plan.map((i) => this.app.view.place(i)), colour: "plan", width: 2.5, arrows: true });
    const here = this.position(step);
    const target = goal?.position ?? (goal?.node !== null && goal?.node !== undefined && goal.node >= 0 ? this.app.view.place(goal.node) : null);
    if (target) shapes.push({ kind: "mark", at: target, form: "square", colour: "plan", radius: 6, label: "goal" });
    if (step.waypoint !== null && step.waypoint >= 0) {
      shapes.push({ kind: "mark", at: this.app.view.place(step.waypoint), form: "ring", colour: "plan", radius: 9, label: `waypoint ${step.waypoint}` });
    }
    const end = gave_up ? this.position(steps[Math.min(gave_up.t, steps.length - 1)]!) : null;
    if (end) shapes.push({ kind: "mark", at: end, form: "cross", colour: "failed", radius: 6, label: "gave up", below: true });
    if (here) shapes.push({ kind: "mark", at: here, form: "disc", colour: "chosen", radius: 7, label: "robot" });
    return shapes;
  }
}

export async function episodeScreen(app: App): Promise<Node[]> {
  const head = heading("Episode", "What happened?");
  if (app.place.episode === null) return [head, ...(await list(app))];
  const episode = await app.ask<EpisodeFacts>(`/api/episode/${encodeURIComponent(app.place.episode)}`);
  const about = [
    head,
    h("p", {}, link(app, { episode: null, step: null }, "All episodes")),
    h("h3", {}, episode.title, " ", h("span", { class: "tag" }, result(episode.success))),
    h("p", {}, episode.text),
  ];
  if (!episode.steps.length) return [...about, h("p", { class: "notice" }, "This episode has no steps.")];
  return [...about, ...new Walk(app, episode, app.place.step ?? 0).elements()];
}
