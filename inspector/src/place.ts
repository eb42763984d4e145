// The place of the reader: the screen and the selection, stored in the address after "#".

export const SCREENS = [
  "map", "node", "edge", "plan", "why", "suspects", "components", "time", "compare", "episode", "guarantee",
] as const;
export type Screen = (typeof SCREENS)[number];

export const COLOURS = ["component", "evidence", "age", "visits"] as const;
export type ColourMode = (typeof COLOURS)[number];

export interface Place {
  screen: Screen;
  node: number | null;
  edge: [number, number] | null;
  from: number | null;
  to: number | null;
  suspect: number | null; // position in the list, from 0
  component: number | null;
  at: number | null; // event number
  episode: string | null;
  step: number | null;
  colour: ColourMode;
  removed: boolean;
  floor: boolean;
}

export const HOME: Place = {
  screen: "map", node: null, edge: null, from: null, to: null, suspect: null, component: null, at: null,
  episode: null, step: null, colour: "component", removed: true, floor: true,
};

function integer(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

function pair(text: string | null): [number, number] | null {
  const match = /^(\d{1,10})[-,](\d{1,10})$/.exec(text ?? "");
  return match ? [Number(match[1]), Number(match[2])] : null;
}

function screenOf(given: URLSearchParams): Screen {
  const name = given.get("screen");
  if (SCREENS.includes(name as Screen)) return name as Screen;
  if (given.has("from") || given.has("to")) return "plan";
  if (given.has("edge")) return "edge";
  if (given.has("node")) return "node";
  return given.has("at") ? "time" : given.has("episode") ? "episode" : "map";
}

/** Parses an address; missing parts are those of `HOME`. */
export function parse(hash: string): Place {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const colour = given.get("colour") as ColourMode;
  return {
    screen: screenOf(given),
    node: integer(given.get("node")),
    edge: pair(given.get("edge")),
    from: integer(given.get("from")),
    to: integer(given.get("to")),
    suspect: integer(given.get("suspect")),
    component: integer(given.get("component")),
    at: integer(given.get("at")),
    episode: given.get("episode"),
    step: integer(given.get("step")),
    colour: COLOURS.includes(colour) ? colour : HOME.colour,
    removed: given.get("removed") !== "0",
    floor: given.get("floor") !== "0",
  };
}

/** Formats a place as an address; the inverse of `parse`. */
export function format(place: Place): string {
  const parts: string[] = [`screen=${place.screen}`];
  for (const name of ["node", "from", "to", "suspect", "component", "at", "step"] as const) {
    if (place[name] !== null) parts.push(`${name}=${place[name]}`);
  }
  if (place.edge) parts.push(`edge=${place.edge.join("-")}`);
  if (place.episode !== null) parts.push(`episode=${encodeURIComponent(place.episode)}`);
  if (place.colour !== HOME.colour) parts.push(`colour=${place.colour}`);
  if (!place.removed) parts.push("removed=0");
  if (!place.floor) parts.push("floor=0");
  return "#" + parts.join("&");
}
