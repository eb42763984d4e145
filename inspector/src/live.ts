// News from the server while the page is open: the file changed, is gone, is damaged, is back.
import type { App } from "./app";

export function listenToFile(app: App): void {
  const news = new EventSource("/api/live");
  let lost = false;
  const said = (event: Event) => JSON.parse((event as MessageEvent<string>).data) as { version?: string; text?: string };

  const refresh = async (text: string, version?: string) => {
    if (version !== undefined && version === app.summary.version) return;
    try {
      await app.load();
      await app.show(true);
      app.say(text);
    } catch (fault) {
      app.say((fault as Error).message, "fault");
    }
  };
  const clock = () => new Date().toTimeString().slice(0, 8);

  news.addEventListener("hello", (event) => void refresh("The inspector answers again; this is the file's new state.", said(event).version));
  news.addEventListener("change", (event) => void refresh(`The file changed at ${clock()}; this is its new state.`, said(event).version));
  news.addEventListener("back", () => void refresh(`The file is back, as of ${clock()}.`));
  for (const kind of ["gone", "damaged"]) {
    news.addEventListener(kind, (event) => app.say(said(event).text ?? `The file is ${kind}.`, "fault"));
  }
  news.addEventListener("error", () => {
    if (!lost) app.say("The inspector does not answer; what you see may be old. Start it again with: sgm inspect", "fault");
    lost = true;
  });
  news.addEventListener("open", () => {
    if (lost) app.say("The inspector answers again.");
    lost = false;
  });
}

/** Where nothing could be shown: starts again when there is something to show. */
export function reloadWhenBack(): void {
  const news = new EventSource("/api/live");
  for (const kind of ["change", "back"]) news.addEventListener(kind, () => location.reload());
}
