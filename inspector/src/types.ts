// Types of the server's answers; see docs/inspector.md.

export interface Belief {
  mean: number;
  low: number;
  high: number;
}

/** An edge; weight and cost (`price`) in steps, null if the edge is not used for planning. */
export interface Edge {
  source: number;
  target: number;
  weight: number | null;
  price: number | null;
  successes: number;
  failures: number;
  state: number;
  belief?: Belief | null;
}

export interface Summary {
  version: string;
  name: string;
  nodes: number;
  edges: number;
  removed: number;
  guarded: number;
  observations: number;
  attributes: { name: string; shape: number[]; dtype: string }[];
  settings: Record<string, unknown>;
  policy: Record<string, unknown>;
  layout: { kind: "positions" | "computed"; attribute: string | null; text: string };
  floor: boolean;
  images: boolean;
  own_motion: boolean;
  events: { first: number; last: number };
  components: number;
  largest_component: number;
  write: boolean;
  compare: { name: string } | null;
  episodes: number;
  guarantee: boolean;
  limits: string[];
  warnings: string[];
}

export interface NodeFacts {
  node: number;
  stream: number | null;
  visits: number;
  component: number;
  position: number[] | null;
  attributes: Record<string, unknown>;
  image: string | null;
  observations: number[];
  in: Edge[];
  out: Edge[];
}

export interface EventFacts {
  sequence: number;
  time: number | null;
  kind: string;
  episode: number | null;
  source?: number;
  target?: number;
}

export interface EdgeFacts extends Edge {
  removed_at: number | null;
  removed_event: { sequence: number; time: number | null } | null;
  rule: string;
  streak: number;
  guarded: boolean;
  walked: boolean;
  walked_steps?: number | null;
  events: EventFacts[];
  suspicion: { score: number; rank: number; reasons: string[] } | null;
  images: (string | null)[];
}

export interface PlanFacts {
  from: number;
  to: number;
  nodes: number[];
  cost: number;
  steps?: number;
  legs: Edge[];
  images: (string | null)[];
  error?: string;
}

export interface Way {
  nodes: number[];
  legs?: Edge[];
  images?: (string | null)[];
  price: number | null;
  weight: number | null;
}

export interface WhyFacts {
  chosen: Way | null;
  shortest: Way | null;
  same: boolean;
  causes: { kind: string; edge: Edge | null; steps: number | null; text: string }[];
  difference: number | null;
  text: string;
  error?: string;
}

export interface Suspect {
  source: number;
  target: number;
  score: number;
  rank: number;
  reasons: string[];
  state: number;
}

export interface SuspectList {
  suspects: Suspect[];
  total: number;
  text: string;
}

export interface ComponentList {
  components: { id: number; size: number; sample: number[] }[];
  cut: { edge: Edge; from_component: number; to_component: number }[];
  text: string;
}

export interface EventList {
  events: EventFacts[];
  first: number;
  last: number;
}

export interface Comparison {
  same_stream: boolean;
  text: string;
  added: [number, number][];
  removed: [number, number][];
  repriced: [number, number, number | null, number | null][];
  counts: Record<string, number>;
}

export interface EpisodeLine {
  id: number | string;
  title: string;
  kind: string;
  success: boolean | null;
  steps: number;
  goal: unknown;
  start: unknown;
}

export interface EpisodeStep {
  t: number;
  position: [number, number] | null;
  node: number | null;
  waypoint: number | null;
  event: string;
  image: string | null;
}

export interface EpisodeFacts {
  id: number | string;
  title: string;
  text: string;
  success: boolean | null;
  goal: { node: number | null; position: [number, number] | null; image?: string | null } | null;
  steps: EpisodeStep[];
  gave_up: { t: number; edge: [number | null, number | null] | null } | null;
  plans?: { t: number; nodes: number[] }[];
}

export interface Guarantee {
  holds: boolean | null;
  conditions: { name: string; holds: boolean | null; text: string }[];
  numbers: Record<string, unknown>;
  text: string;
}

export interface Found {
  nodes: number[];
  edges: [number, number][];
  text: string;
}

/** The graph as arrays; V nodes, E edges. */
export interface Graph {
  version: string;
  position: Float32Array; // (V, 2)
  component: Uint32Array; // (V) 0 is the largest
  visits: Uint32Array; // (V) observations merged into the node
  age: Uint32Array; // (V) stream index of its observation
  source: Uint32Array; // (E)
  target: Uint32Array; // (E)
  weight: Float32Array; // (E) steps
  price: Float32Array; // (E) steps
  successes: Uint32Array; // (E)
  failures: Uint32Array; // (E)
  state: Uint8Array; // (E) STANDS, GUARDED, REMOVED or ABSENT
}

export const STANDS = 0;
export const GUARDED = 1;
export const REMOVED = 2;
export const ABSENT = 3;
export const NOT_THERE = 0xffffffff;
