// What lets this page write. The address that `sgm inspect --write` prints carries it behind "#", where no server sees it.

const KEY = "sgm-token";

/** Take the token out of the address, so that links which are kept or sent do not have it. It lasts as long as the tab. */
export function takeToken(): void {
  const given = new URLSearchParams(location.hash.slice(1));
  const token = given.get("token");
  if (token === null) return;
  sessionStorage.setItem(KEY, token);
  given.delete("token");
  history.replaceState(null, "", `#${given}`);
}

export function writeToken(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null; // a frame that may store nothing
  }
}
