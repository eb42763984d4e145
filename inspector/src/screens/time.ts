// Time: the memory after any stored event.
import { get } from "../api";
import type { App } from "../app";
import { button, h, table } from "../dom";
import { edgeLink, heading } from "../parts";
import { plural, when, whole } from "../text";
import { type EventFacts, type EventList, GUARDED, REMOVED } from "../types";

const AROUND = 12; // events listed before the current one
const TICK = 120; // ms between events when playing
let playing = 0;

function listed(app: App, events: EventFacts[], at: number): HTMLElement {
  const rows = events.map((event) => [
    event.sequence === at ? h("strong", { "aria-current": "true" }, whole(event.sequence)) : whole(event.sequence),
    event.kind,
    event.source === undefined ? "" : edgeLink(app, event.source, event.target!),
    when(event.time),
  ]);
  return table("Events up to here", ["event", "kind", "edge", "time"], rows, [0]);
}

function counted(app: App): string {
  const states = app.view.graph.state;
  let [removed, guarded] = [0, 0];
  for (const state of states) {
    if (state === REMOVED) removed++;
    else if (state === GUARDED) guarded++;
  }
  return `${plural(removed, "edge")} removed, ${whole(guarded)} guarded`;
}

/** The slider over events; it updates the map, the numbers and the list of events. */
class Scrubber {
  private readonly range: HTMLInputElement;
  private readonly title = h("p", { class: "big", id: "event" });
  private readonly counts = h("p", { id: "counted" });
  private readonly events = h("div");
  private readonly play: HTMLButtonElement;
  private run = 0;

  constructor(
    private readonly app: App,
    private readonly first: number,
    private readonly last: number,
    private at: number,
  ) {
    this.range = h("input", { type: "range", min: first, max: last, step: 1, value: at, "aria-label": "Event", "data-key": "scrubber", input: () => void this.move(Number(this.range.value)) });
    this.play = button("Play", () => this.toggle());
    clearInterval(playing);
  }

  async elements(): Promise<Node[]> {
    await this.move(this.at, true);
    const hop = (text: string, by: number) => button(text, () => void this.move(this.at + by));
    return [
      this.title,
      this.range,
      h("div", { class: "actions" }, hop("−100", -100), hop("−1", -1), this.play, hop("+1", 1), hop("+100", 100)),
      this.counts,
      this.events,
    ];
  }

  private toggle(): void {
    const on = this.play.textContent === "Play";
    this.play.textContent = on ? "Pause" : "Play";
    clearInterval(playing);
    if (!on) return;
    playing = window.setInterval(() => {
      if (!this.play.isConnected || this.at >= this.last) this.stop();
      else void this.move(this.at + 1);
    }, TICK);
  }

  private stop(): void {
    clearInterval(playing);
    this.play.textContent = "Play";
  }

  private async move(to: number, first = false): Promise<void> {
    const run = ++this.run;
    this.at = Math.min(Math.max(to, this.first), this.last);
    this.range.value = String(this.at);
    this.range.setAttribute("aria-valuetext", `event ${this.at} of ${this.last}`);
    this.title.replaceChildren(`Event ${whole(this.at)}`, h("small", {}, ` of ${whole(this.last)}`));
    if (!first) this.app.go({ at: this.at }, { replace: true, quiet: true });
    const after = Math.max(this.at - AROUND, this.first - 1, 0);
    const [list] = await Promise.all([
      get<EventList>(`/api/events?after=${after}&limit=${Math.max(this.at - after, 1)}`),
      this.app.stateAt(this.at),
    ]);
    if (run !== this.run) return;
    this.counts.textContent = counted(this.app);
    this.events.replaceChildren(listed(this.app, list.events.filter((one) => one.sequence <= this.at).reverse(), this.at));
  }
}

export async function timeScreen(app: App): Promise<Node[]> {
  const { first, last } = app.summary.events;
  const head = [heading("Time", "When did it change?")];
  if (!last) {
    const { removed, guarded } = app.summary;
    const text = removed + guarded ? "This memory has no events: the evidence about edges has the results of tries, but not their time." : "This memory has no events: nothing has been recorded yet.";
    return [...head, h("p", { class: "notice" }, text)];
  }
  const scrubber = new Scrubber(app, first, last, app.place.at ?? last);
  return [
    ...head,
    h("p", { class: "quiet" }, `The map shows the memory after the event; colouring by evidence shows the most. Events ${whole(first)} to ${whole(last)} can be shown.`),
    ...(await scrubber.elements()),
  ];
}
