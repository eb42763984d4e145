// The tabs of the screens.
import type { App } from "./app";
import { h, need, s } from "./dom";
import { SCREENS, type Screen } from "./place";

/** Paths of the icons, drawn as strokes on 16 × 16. */
const ICONS: Record<Screen, string> = {
  map: "M2 4l4-2 4 2 4-2v10l-4 2-4-2-4 2zM6 2v10M10 4v10",
  node: "M8 4a4 4 0 100 8 4 4 0 000-8z",
  edge: "M2 8h11M9 4l4 4-4 4",
  plan: "M3 13a1.5 1.5 0 100-.1M4.5 12c5 0 1-8 6-8M13 4a1.5 1.5 0 100-.1",
  why: "M5 6a3 3 0 113.5 3c-.5.2-.5.8-.5 1.5M8 13v.2",
  suspects: "M8 2l6 11H2zM8 6v3M8 11v.2",
  components: "M5 3a2.5 2.5 0 100 5 2.5 2.5 0 000-5zM11 8a2.5 2.5 0 100 5 2.5 2.5 0 000-5z",
  time: "M8 2a6 6 0 100 12A6 6 0 008 2zM8 5v3l2 2",
  compare: "M3 5h10M10 2l3 3-3 3M13 11H3M6 8l-3 3 3 3",
  episode: "M4 3l9 5-9 5z",
  guarantee: "M8 2l5 2v4c0 3-2 5-5 6-3-1-5-3-5-6V4zM6 8l1.5 1.5L10.5 6",
};

/** Draws the tabs, or marks the current one. */
export function drawTabs(app: App): void {
  const bar = need("tabs");
  if (!bar.childElementCount) {
    bar.append(...SCREENS.map((screen) => tab(app, screen)));
    bar.addEventListener("keydown", (event) => arrow(app, event));
    const narrow = matchMedia("(max-width: 860px)");
    const turn = () => bar.setAttribute("aria-orientation", narrow.matches ? "horizontal" : "vertical");
    narrow.addEventListener("change", turn);
    turn();
  }
  for (const one of bar.children) {
    const here = one.id === `tab-${app.place.screen}`;
    one.setAttribute("aria-selected", String(here));
    one.setAttribute("tabindex", here ? "0" : "-1");
    if (here) one.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  need("panel").setAttribute("aria-labelledby", `tab-${app.place.screen}`);
}

function tab(app: App, screen: Screen): HTMLElement {
  return h(
    "button",
    { type: "button", role: "tab", id: `tab-${screen}`, "aria-controls": "panel", click: () => app.go({ screen }) },
    s("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: ICONS[screen] })),
    screen[0]!.toUpperCase() + screen.slice(1),
  );
}

function arrow(app: App, event: KeyboardEvent): void {
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  const last = SCREENS.length - 1;
  const at = SCREENS.indexOf(app.place.screen);
  const next = step ? (at + step + last + 1) % (last + 1) : event.key === "Home" ? 0 : event.key === "End" ? last : -1;
  if (next < 0) return;
  event.preventDefault();
  app.go({ screen: SCREENS[next]! }, { replace: true });
  need(`tab-${SCREENS[next]}`).focus();
}
