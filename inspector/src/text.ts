// Formatting of numbers, times and states.
import type { Edge } from "./types";

const SMALL = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A number with at most two decimals; ∞ for null or a number that is not finite. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "∞";
  return SMALL.format(value);
}

export function whole(value: number): string {
  return WHOLE.format(value);
}

export function steps(value: number | null | undefined): string {
  return `${number(value)} ${value === 1 ? "step" : "steps"}`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${whole(count)} ${count === 1 ? one : many}`;
}

export function share(value: number): string {
  return `${Math.round(value * 100)} %`;
}

export function when(time: number | null | undefined): string {
  if (time === null || time === undefined || !Number.isFinite(time) || time <= 0) return "at an unknown time";
  return new Date(time * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
}

export const STATES = ["in use", "guarded", "removed", "not added yet", "left out by the k-nearest filter"];

export function stateName(state: number): string {
  return STATES[state] ?? String(state);
}

/** The last two parts of a path. */
export function shortPath(path: string): string {
  return path.split(/[\\/]/).slice(-2).join("/");
}

/** "3 of 5 reached", or "not tried". */
export function tries(edge: Edge): string {
  const total = edge.successes + edge.failures;
  return total ? `${whole(edge.successes)} of ${whole(total)} reached` : "not tried";
}

export function edgeName(source: number, target: number): string {
  return `${source} → ${target}`;
}

/** Any value of the server as one line of text. */
export function value(given: unknown): string {
  if (given === null || given === undefined) return "none";
  if (typeof given === "number") return number(given);
  if (typeof given === "boolean") return given ? "yes" : "no";
  if (typeof given === "string") return given;
  if (Array.isArray(given)) return given.map(value).join(", ");
  const shape = (given as { shape?: unknown }).shape;
  if (Array.isArray(shape)) return `array of ${shape.join(" × ")}`;
  return JSON.stringify(given);
}
