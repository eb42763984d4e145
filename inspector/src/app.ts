// The state of the page: loaded data, current screen and selection, and what the map shows.
import { get, getArrays, getGraph, Refusal } from "./api";
import { h, need } from "./dom";
import { legend } from "./legend";
import { edgeIndex } from "./map/pick";
import type { Point, Shape } from "./map/shapes";
import { MapView } from "./map/view";
import { format, HOME, parse, type Place } from "./place";
import { drawTabs } from "./tabs";
import { plural, shortPath, whole } from "./text";
import { type Graph, type PlanFacts, REMOVED, type Summary } from "./types";
import { SCREENS } from "./screens";

export class App {
  place: Place = HOME;
  summary!: Summary;
  graph!: Graph; // now
  readonly view: MapView;
  private run = 0;
  private marks: Shape[] = [];
  private plan: { key: string; facts: PlanFacts | null } = { key: "", facts: null };
  private readonly answers = new Map<string, Promise<unknown>>();
  private shown: { at: number | null; done: Promise<void> } = { at: null, done: Promise.resolve() };
  private restate: AbortController | null = null;

  constructor() {
    const plain = /[#&]renderer=2d\b/.test(location.hash);
    this.view = new MapView(need("graph") as HTMLCanvasElement, need("above") as HTMLCanvasElement, plain);
    this.view.onFault = (text) => this.say(text, "fault");
  }

  /** Loads all data, at the start and when the file has changed. */
  async load(): Promise<void> {
    const first = !this.graph;
    const [summary, { graph, bytes }] = await Promise.all([get<Summary>("/api/summary"), getGraph()]);
    Object.assign(this, { summary, graph });
    this.answers.clear();
    this.plan = { key: "", facts: null };
    this.shown = { at: null, done: Promise.resolve() };
    this.view.timings.payload = bytes;
    this.view.setGraph(graph);
    if (first) this.view.fitNow();
    if (first && summary.floor) await this.loadFloor();
    this.headline();
    this.view.drawNow();
  }

  private async loadFloor(): Promise<void> {
    try {
      this.view.setFloor((await get<{ lines: number[][] }>("/api/floor")).lines);
      this.view.fitNow();
    } catch (fault) {
      this.say((fault as Error).message, "fault");
    }
  }

  private headline(): void {
    const { name, nodes, edges, removed, layout } = this.summary;
    need("name").textContent = shortPath(name);
    need("name").title = name;
    document.body.classList.toggle("imageless", !this.summary.images);
    need("counts").textContent = `${plural(nodes, "node")}, ${plural(edges, "edge")}, ${whole(removed)} removed`;
    need("layout").textContent = layout.text;
    need("layout").hidden = !layout.text;
    (need("floor").parentElement as HTMLElement).hidden = !this.summary.floor;
  }

  /** An answer about this version of the file, requested once. */
  ask<T>(path: string): Promise<T> {
    const known = this.answers.get(path);
    if (known) return known as Promise<T>;
    const answer = get<T>(path);
    this.answers.set(path, answer);
    answer.catch(() => this.answers.delete(path));
    return answer;
  }

  /** Goes to a place; `replace` adds no entry to the browser's history, `quiet` does not redraw the panel. */
  go(change: Partial<Place>, { replace = false, quiet = false } = {}): void {
    const next = format({ ...this.place, ...change });
    if (replace) history.replaceState(null, "", next);
    else if (next !== location.hash) history.pushState(null, "", next);
    if (!quiet) void this.show();
    else this.place = parse(next);
  }

  /** Shows the place in the address. */
  async show(refresh = false): Promise<void> {
    const before = this.place;
    this.place = parse(location.hash);
    const run = ++this.run;
    drawTabs(this);
    this.look();
    this.marks = [];
    this.drawShapes();
    const panel = need("panel");
    panel.setAttribute("aria-busy", "true");
    const [content] = await Promise.all([this.content(), this.stateAt(this.place.screen === "time" ? this.place.at : null), this.fetchPlan()]);
    if (run !== this.run) return;
    this.fill(panel, content, before.screen !== this.place.screen && !refresh);
    this.drawShapes();
    document.title = `${this.place.screen} · ${shortPath(this.summary.name)} · SGM inspector`;
  }

  private async content(): Promise<Node[]> {
    try {
      return await SCREENS[this.place.screen](this);
    } catch (fault) {
      if (!(fault instanceof Refusal)) console.error(fault);
      return [h("p", { class: "notice" }, (fault as Error).message)];
    }
  }

  /** Puts content into the panel; the element with the same key keeps the focus, otherwise the new screen gets it. */
  private fill(panel: HTMLElement, content: Node[], fresh: boolean): void {
    const held = panel.contains(document.activeElement) ? document.activeElement : null;
    const key = held?.getAttribute("data-key");
    panel.replaceChildren(...content);
    panel.removeAttribute("aria-busy");
    if (fresh) panel.scrollTop = 0;
    if (!held) return;
    const same = key ? [...panel.querySelectorAll("[data-key]")].find((one) => one.getAttribute("data-key") === key) : null;
    ((same as HTMLElement | null) ?? panel).focus({ preventScroll: !fresh });
  }

  /** Sets colours, switches and legend from the place. */
  private look(): void {
    const { colour, removed, floor } = this.place;
    need<HTMLSelectElement>("colour").value = colour;
    need<HTMLInputElement>("removed").checked = removed;
    need<HTMLInputElement>("floor").checked = floor;
    this.view.setLook(colour, removed, floor);
    need("legend").replaceChildren(legend(this.view.graph, colour, this.view.palette, removed));
  }

  /** Shows the graph after event `at`; null is now. */
  stateAt(at: number | null): Promise<void> {
    if (this.shown.at !== at) {
      this.restate?.abort();
      this.restate = new AbortController();
      this.shown = { at, done: this.fetchState(at, this.restate.signal) };
    }
    return this.shown.done;
  }

  private async fetchState(at: number | null, signal: AbortSignal): Promise<void> {
    try {
      const now = at === null || at >= this.summary.events.last;
      const arrays = now ? {} : (await getArrays(`/api/state?at=${at}`, signal)).arrays;
      this.view.setGraph({ ...this.graph, ...(arrays as Partial<Graph>) });
      this.look();
    } catch (fault) {
      if (fault instanceof Refusal) this.say(fault.message, "fault");
    }
  }

  private async fetchPlan(): Promise<void> {
    const { from, to } = this.place;
    const key = from === null || to === null ? "" : `/api/plan?from=${from}&to=${to}`;
    if (key === this.plan.key) return;
    const facts = key ? await this.ask<PlanFacts>(key).catch(() => null) : null;
    this.plan = { key, facts };
  }

  /** Sets the shapes of a screen on the map; the plan is drawn above them. */
  mark(shapes: Shape[]): void {
    this.marks = shapes;
  }

  drawShapes(): void {
    this.view.setShapes([...this.marks, ...this.selection(), ...this.planShapes()]);
  }

  private planShapes(): Shape[] {
    const { from, to } = this.place;
    const nodes = this.plan.facts?.nodes ?? [];
    const shapes: Shape[] = [];
    if (nodes.length > 1) {
      shapes.push({ kind: "path", points: nodes.map((i) => this.view.place(i)), colour: "plan", width: 4, arrows: true });
      for (const i of nodes) shapes.push({ kind: "mark", at: this.view.place(i), form: "disc", colour: "plan", radius: 4.5 });
    }
    if (from !== null) shapes.push({ kind: "mark", at: this.view.place(from), form: "disc", colour: "plan", radius: 8, label: `start ${from}` });
    if (to !== null) shapes.push({ kind: "mark", at: this.view.place(to), form: "square", colour: "plan", radius: 7, label: `goal ${to}` });
    return shapes;
  }

  private selection(): Shape[] {
    const { screen, node, edge } = this.place;
    if (screen === "node" && node !== null) {
      return [{ kind: "mark", at: this.view.place(node), form: "ring", colour: "chosen", radius: 10, label: String(node) }];
    }
    return screen === "edge" && edge ? this.edgeShapes(...edge) : [];
  }

  /** Shapes that highlight an edge and both ends. */
  edgeShapes(u: number, v: number): Shape[] {
    const i = edgeIndex(this.graph, u, v);
    const dash = i >= 0 && this.graph.state[i] === REMOVED ? [9, 7] : [];
    const ends: Point[] = [this.view.place(u), this.view.place(v)];
    return [
      { kind: "path", points: ends, colour: "chosen", width: 4, arrows: true, dash },
      { kind: "mark", at: ends[0]!, form: "ring", colour: "chosen", radius: 7, label: String(u) },
      { kind: "mark", at: ends[1]!, form: "ring", colour: "chosen", radius: 7, label: String(v), below: true },
    ];
  }

  reveal(...nodes: number[]): void {
    this.view.reveal(nodes.filter((i) => i >= 0).map((i) => this.view.place(i)));
  }

  /** A click on a node: on Plan and Why it is start or goal, elsewhere it is selected. */
  pickNode(node: number): void {
    const { screen, from, to } = this.place;
    if (screen === "plan" || screen === "why") {
      if (from === null || to !== null) this.go({ from: node, to: null });
      else this.go({ to: node });
    } else this.go({ screen: "node", node, at: null });
  }

  /** Shows a line above the page: news or an error. */
  say(text: string, kind: "news" | "fault" = "news"): void {
    const bar = need("message");
    bar.replaceChildren(h("span", {}, text), h("button", { type: "button", "aria-label": "Close the message", click: () => (bar.hidden = true) }, "✕"));
    bar.className = kind;
    bar.hidden = false;
  }

  quiet(): void {
    need("message").hidden = true;
  }
}
