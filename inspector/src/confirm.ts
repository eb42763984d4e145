// Confirmation before the file is changed.
import { h, need } from "./dom";

/** Shows a dialog; resolves to true if the reader confirms. */
export function confirmed(question: string, text: string, verb: string): Promise<boolean> {
  const dialog = need<HTMLDialogElement>("confirm");
  return new Promise((done) => {
    dialog.replaceChildren(
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: "confirm-title" }, question),
        h("p", {}, text),
        h(
          "div",
          { class: "actions" },
          h("button", { value: "no", autofocus: true }, "Cancel"),
          h("button", { value: "yes", class: "danger" }, verb[0]!.toUpperCase() + verb.slice(1)),
        ),
      ),
    );
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });
}
