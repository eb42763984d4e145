// Creation of elements: nothing in this page is ever parsed as HTML.

export type Child = Node | string | number | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

/** Makes an element. Attributes that are functions become listeners; false, null and undefined are left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  set(element, attributes);
  append(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag) as SVGElementTagNameMap[K];
  set(element, attributes);
  append(element, children);
  return element;
}

function set(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value as unknown as EventListener);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

export function need<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element ${id}`);
  return element as T;
}

/** A button; its text is also its key, by which it regains the focus when the panel is drawn again. */
export function button(text: string, click: () => void, more: Attributes = {}): HTMLButtonElement {
  return h("button", { type: "button", "data-key": text, click, ...more }, text);
}

/** A list of facts: name and value in two columns. */
export function facts(rows: [string, Child | Child[]][]): HTMLElement {
  const list = h("dl", { class: "facts" });
  for (const [name, value] of rows) {
    list.append(h("dt", {}, name), h("dd", {}, ...(Array.isArray(value) ? value : [value])));
  }
  return list;
}

export interface Cell {
  text: Child;
  number?: boolean;
}

/** A table with a caption; numbers are right-aligned. */
export function table(caption: string, head: string[], rows: Child[][], numeric: number[] = []): HTMLElement {
  const align = (i: number) => (numeric.includes(i) ? "number" : null);
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, ...head.map((name, i) => h("th", { scope: "col", class: align(i) }, name)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell, i) => h("td", { class: align(i) }, cell))))),
    ),
  );
}
