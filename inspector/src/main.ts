// Entry point: loads the memory, shows it and listens to events.
import { App } from "./app";
import { need } from "./dom";
import { listenToFind } from "./find";
import { listenToKeys, openHelp } from "./keys";
import { listenToFile, reloadWhenBack } from "./live";
import { listen } from "./map/pointer";
import type { ColourMode } from "./place";
import { edgeName, tries } from "./text";
import { takeToken } from "./token";

function save(content: Blob, name: string): void {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(content);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

function listenToTools(app: App): void {
  need("fit").addEventListener("click", () => app.view.fit());
  need("keys").addEventListener("click", openHelp);
  need("png").addEventListener("click", async () => {
    const picture = await app.view.png(app.summary.layout.text);
    if (picture) save(picture, "sgm-view.png");
  });
  need("svg").addEventListener("click", () => {
    const { from, to } = app.place;
    if (from === null || to === null) return app.say("Choose a start and a goal first: the file shows the plan.");
    save(new Blob([app.view.svg(`Plan from ${from} to ${to}`)], { type: "image/svg+xml" }), `sgm-plan-${from}-${to}.svg`);
  });
}

function listenToLook(app: App): void {
  const colour = need<HTMLSelectElement>("colour");
  colour.addEventListener("change", () => app.go({ colour: colour.value as ColourMode }, { replace: true }));
  for (const name of ["removed", "floor"] as const) {
    const box = need<HTMLInputElement>(name);
    box.addEventListener("change", () => app.go({ [name]: box.checked }, { replace: true }));
  }
}

/** Listens to the pointer on the map; returns a function that returns the node under it, or −1. */
function listenToMap(app: App): () => number {
  const tip = need("hover");
  let under = -1;
  const text = (node: number, edge: number) => {
    const { graph } = app.view;
    if (node >= 0) return `node ${node}, component ${graph.component[node]}`;
    const { source, target, successes, failures, weight, price, state } = graph;
    const facts = { source: source[edge]!, target: target[edge]!, successes: successes[edge]!, failures: failures[edge]!, weight: weight[edge]!, price: price[edge]!, state: state[edge]! };
    return `edge ${edgeName(facts.source, facts.target)}, ${tries(facts)}`;
  };
  listen(need("above"), app.view, {
    node: (i) => app.pickNode(i),
    edge: (i) => app.go({ screen: "edge", edge: [app.view.graph.source[i]!, app.view.graph.target[i]!], at: null }),
    selected: () => app.place.node,
    hover: (node, edge, x, y) => {
      under = node;
      tip.hidden = node < 0 && edge < 0;
      need("above").classList.toggle("over", !tip.hidden);
      if (tip.hidden) return;
      tip.textContent = text(node, edge);
      tip.style.transform = `translate(${Math.min(x + 14, app.view.camera.width - tip.offsetWidth - 8)}px, ${Math.max(y - 34, 4)}px)`;
    },
  });
  return () => under;
}

declare global {
  interface Window {
    /** For tests and measurements. */
    sgmInspector: unknown;
  }
}

async function start(): Promise<void> {
  takeToken();
  const app = new App();
  window.sgmInspector = {
    timings: app.view.timings,
    frames: (count: number) => app.view.frames(count),
    recolours: (count: number) => app.view.recolours(count),
    where: (node: number) => app.view.camera.toScreen(...app.view.place(node)),
    camera: app.view.camera,
    shapes: () => app.view.shapes,
    graph: () => app.view.graph,
  };
  listenToTools(app);
  try {
    await app.load();
  } catch (fault) {
    app.say((fault as Error).message, "fault");
    return reloadWhenBack();
  }
  listenToLook(app);
  listenToKeys(app, listenToMap(app));
  listenToFind(app);
  addEventListener("hashchange", () => void app.show());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => void app.show(true));
  await app.show();
  listenToFile(app);
  document.body.dataset["ready"] = "yes";
}

void start();
