// Guarantee: the certificate of Theorem 1 and its conditions.
import type { App } from "../app";
import { facts, h } from "../dom";
import { heading } from "../parts";
import { value } from "../text";
import type { Guarantee } from "../types";

const verdict = (holds: boolean | null) => (holds === null ? "○ Unknown" : holds ? "✓ Holds" : "✕ Does not hold");

const VERDICT = /^(holds|does not hold)\.?$/; // already shown by the sign

export async function guaranteeScreen(app: App): Promise<Node[]> {
  const found = await app.ask<Guarantee>("/api/guarantee");
  const conditions = found.conditions.map(({ name, holds, text }) =>
    h("li", {}, h("strong", {}, `${verdict(holds)}: `), name, text && !VERDICT.test(text) && text !== name ? h("p", { class: "quiet" }, text) : null),
  );
  return [
    heading("Guarantee", "What does Theorem 1 guarantee?"),
    h("p", { class: "big", id: "holds" }, found.holds === null ? "No certificate" : verdict(found.holds)),
    ...(conditions.length ? [h("h3", {}, "Conditions"), h("ul", { class: "conditions" }, ...conditions)] : []),
    h("p", { class: "lines" }, found.text),
    facts(Object.entries(found.numbers ?? {}).map(([name, one]) => [name, value(one)])),
  ];
}
