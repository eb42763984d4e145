// Events of the server while the page is open: the file has changed, is gone, is damaged, is back.
import type { App } from "./app";

export function listenToFile(app: App): void {
  const news = new EventSource("/api/live");
  let lost = false;
  const said = (event: Event) => JSON.parse((event as MessageEvent<string>).data) as { version?: string; text?: string };

  let loading: Promise<void> = Promise.resolve();
  let wanted = 0;

  /** Loads again after the current load; of many changes in a row only the last is loaded. */
  const refresh = (text: string, version?: string) => {
    const mine = ++wanted;
    loading = loading.then(async () => {
      if (mine !== wanted || (version !== undefined && version === app.summary.version)) return;
      try {
        await app.load();
        await app.show(true);
        app.say(text);
      } catch (fault) {
        app.say((fault as Error).message, "fault");
      }
    });
  };
  const clock = () => new Date().toTimeString().slice(0, 8);

  news.addEventListener("hello", (event) => refresh("The inspector answers again; the page shows its current state.", said(event).version));
  news.addEventListener("change", (event) => refresh(`The file changed at ${clock()}; the page shows its new state.`, said(event).version));
  news.addEventListener("back", () => refresh(`The file is back, as of ${clock()}.`));
  for (const kind of ["gone", "damaged"]) {
    news.addEventListener(kind, (event) => app.say(said(event).text ?? `The file is ${kind}.`, "fault"));
  }
  news.addEventListener("error", () => {
    if (!lost) app.say("The inspector does not answer; the page may be out of date. Start it again with: sgm inspect", "fault");
    lost = true;
  });
  news.addEventListener("open", () => {
    if (lost) app.summary.version = ""; // a new server: load its state in any case
    lost = false;
  });
}

/** Reloads a page that could not be shown when the file has changed or is back. */
export function reloadWhenBack(): void {
  const news = new EventSource("/api/live");
  for (const kind of ["change", "back"]) news.addEventListener(kind, () => location.reload());
}
