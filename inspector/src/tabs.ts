// The list of screens.
import type { App } from "./app";
import { h, need } from "./dom";
import { SCREENS, type Screen } from "./place";

const ICONS: Record<Screen, string> = {
  map: "⌖", node: "●", edge: "→", plan: "⇢", why: "?", suspects: "!", components: "◌", time: "◷", compare: "⇄",
  episode: "▷", guarantee: "✓",
};

/** Draws the tabs, or marks the current one. */
export function drawTabs(app: App): void {
  const bar = need("tabs");
  if (!bar.childElementCount) {
    bar.append(...SCREENS.map((screen) => tab(app, screen)));
    bar.addEventListener("keydown", (event) => arrow(app, event));
    const narrow = matchMedia("(max-width: 760px)");
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
    h("span", { class: "icon", "aria-hidden": "true" }, ICONS[screen]),
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
