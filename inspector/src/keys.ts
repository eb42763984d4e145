// Keyboard shortcuts, and the dialog that lists them.
import type { App } from "./app";
import { facts, h, need } from "./dom";
import { HOME } from "./place";
import { nextSuspect } from "./screens/suspects";

const KEYS: [string, string][] = [
  ["f", "show everything"],
  ["/", "find a node, an edge or an attribute"],
  ["s, g", "use the selected node as start, as goal"],
  ["n, p", "next and previous suspect"],
  ["r", "show or hide removed edges"],
  ["c", "next colouring"],
  ["Esc", "close dialogs, clear the selection"],
  ["Tab", "next control"],
  ["arrows on the tabs", "next and previous screen"],
  ["arrows on the map", "pan"],
  ["+ and − on the map", "zoom"],
  ["Enter on the map", "select the node in the centre"],
  ["Shift and arrows on the map", "next node in that direction"],
  ["?", "this list"],
];

export function openHelp(): void {
  const dialog = need<HTMLDialogElement>("help");
  dialog.replaceChildren(
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "help-title" }, "Keys"),
      facts(KEYS.map(([key, text]) => [key, text])),
      h("div", { class: "actions" }, h("button", { autofocus: true }, "Close")),
    ),
  );
  if (!dialog.open) dialog.showModal();
}

function setEnd(app: App, end: "from" | "to", hovered: number): void {
  const node = hovered >= 0 ? hovered : app.place.node;
  if (node === null) return app.say("Select a node first: click it, or find it with /.");
  app.go({ screen: app.place.screen === "why" ? "why" : "plan", [end]: node });
}

function clear(app: App): void {
  app.quiet();
  const { colour, removed, floor } = app.place;
  app.go({ ...HOME, colour, removed, floor });
}

/** Listens to keys wherever the focus is, except in input fields. */
export function listenToKeys(app: App, hovered: () => number): void {
  const actions: Record<string, () => void> = {
    f: () => app.view.fit(),
    "/": () => need<HTMLInputElement>("query").select(),
    s: () => setEnd(app, "from", hovered()),
    g: () => setEnd(app, "to", hovered()),
    n: () => void nextSuspect(app, 1),
    p: () => void nextSuspect(app, -1),
    r: () => app.go({ removed: !app.place.removed }, { replace: true }),
    c: nextColour,
    "?": openHelp,
    Escape: () => clear(app),
  };
  document.addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (target.matches("input[type=search]")) {
      if (event.key === "Escape") need("above").focus();
      return;
    }
    if (target.matches("select") && event.key !== "Escape") return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function nextColour(): void {
  const select = need<HTMLSelectElement>("colour");
  select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
  select.dispatchEvent(new Event("change"));
}
