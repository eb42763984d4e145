// News from the server while the page is open: the file changed, is gone, is damaged, is back.
import type { App } from "./app";

export function listenToFile(app: App): void {
  const news = new EventSource("/api/live");
  let lost = false;
  const said = (event: Event) => JSON.parse((event as MessageEvent<string>).data) as { version?: string; text?: string };

  let loading: Promise<void> = Promise.resolve();
  let wanted = 0;

  /** Loads again after what is loading now; of many changes in a row only the last is loaded. */
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

  news.addEventListener("hello", (event) => refresh("The inspector answers again; this is what it has now.", said(event).version));
  news.addEventListener("change", (event) => refresh(`The file changed at ${clock()}; this is its new state.`, said(event).version));
  news.addEventListener("back", () => refresh(`The file is back, as of ${clock()}.`));
  for (const kind of ["gone", "damaged"]) {
    news.addEventListener(kind, (event) => app.say(said(event).text ?? `The file is ${kind}.`, "fault"));
  }
  news.addEventListener("error", () => {
    if (!lost) app.say("The inspector does not answer; what you see may be old. Start it again with: sgm inspect", "fault");
    lost = true;
  });
  news.addEventListener("open", () => {
    if (lost) app.summary.version = ""; // a new server: whatever it has is loaded
    lost = false;
  });
}

/** Where nothing could be shown: starts again when there is something to show. */
export function reloadWhenBack(): void {
  const news = new EventSource("/api/live");
  for (const kind of ["change", "back"]) news.addEventListener(kind, () => location.reload());
}
