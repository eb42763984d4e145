// Requests to the server: JSON, binary arrays, and errors with the server's message.
import type { Graph } from "./types";

/** A failed request, with the server's message. */
export class Refusal extends Error {
  constructor(
    text: string,
    readonly status: number,
  ) {
    super(text);
  }
}

async function sentence(answer: Response): Promise<string> {
  try {
    const body = (await answer.json()) as { error?: unknown };
    if (typeof body.error === "string") return body.error;
  } catch {
    // not JSON: only the status is known
  }
  return `The server answered ${answer.status} ${answer.statusText}.`;
}

async function ask(path: string, options: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, options);
  } catch (fault) {
    if (fault instanceof DOMException && fault.name === "AbortError") throw fault;
    throw new Refusal("The inspector does not answer. Start it again with: sgm inspect", 0);
  }
  if (!answer.ok) throw new Refusal(await sentence(answer), answer.status);
  return answer;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await ask(path, { signal })).json() as Promise<T>;
}

export async function post<T>(path: string, token: string): Promise<T> {
  return (await ask(path, { method: "POST", headers: { "X-SGM-Token": token } })).json() as Promise<T>;
}

type Numbers = Float32Array | Uint32Array | Uint8Array;

interface Header {
  version: string;
  arrays: { name: string; dtype: string; shape: number[]; offset: number }[];
}

export interface Container {
  header: Header;
  arrays: Record<string, Numbers>;
  bytes: number;
}

/** The arrays of a binary container: "SGMI", header length, header as JSON, data. */
export function decode(buffer: ArrayBuffer): Container {
  const start = new DataView(buffer);
  if (buffer.byteLength < 8 || start.getUint32(0, false) !== 0x53474d49) {
    throw new Refusal("The server sent arrays that this page cannot read. Reload the page.", 200);
  }
  const length = start.getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length))) as Header;
  const arrays: Record<string, Numbers> = {};
  for (const { name, dtype, shape, offset } of header.arrays) {
    const count = shape.reduce((a, b) => a * b, 1);
    const at = 8 + length + offset;
    if (dtype === "f32") arrays[name] = new Float32Array(buffer, at, count);
    else if (dtype === "u32") arrays[name] = new Uint32Array(buffer, at, count);
    else arrays[name] = new Uint8Array(buffer, at, count);
  }
  return { header, arrays, bytes: buffer.byteLength };
}

export async function getArrays(path: string, signal?: AbortSignal): Promise<Container> {
  return decode(await (await ask(path, { signal })).arrayBuffer());
}

export async function getGraph(): Promise<{ graph: Graph; bytes: number }> {
  const { header, arrays, bytes } = await getArrays("/api/graph");
  return { graph: { ...(arrays as unknown as Graph), version: header.version }, bytes };
}
