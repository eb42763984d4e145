// The token for writing. `sgm inspect --write` prints it after "#" in the address, a part that is not sent to servers.

const KEY = "sgm-token";

/** Moves the token from the address to the storage of the tab, so that copied links do not contain it. */
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
    return null; // a frame without access to storage
  }
}
