// Colours of the map for a light and a dark page.

export type Rgb = readonly [number, number, number];

export interface Palette {
  dark: boolean;
  paper: Rgb;
  ink: Rgb;
  floor: Rgb;
  edge: Rgb;
  plan: Rgb;
  other: Rgb; // the shortest path, next to the plan
  chosen: Rgb;
  reached: Rgb;
  mixed: Rgb;
  failed: Rgb;
  guarded: Rgb;
  removed: Rgb;
  components: Rgb[];
  ramp: Rgb[]; // from small to large values; lightness changes monotonically
}

function rgb(hex: string): Rgb {
  const value = parseInt(hex, 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

const list = (text: string) => text.split(" ").map(rgb);

export const LIGHT: Palette = {
  dark: false,
  paper: rgb("fbfaf7"),
  ink: rgb("1c2430"),
  floor: rgb("b9b4a8"),
  edge: rgb("8793a3"),
  plan: rgb("1550d8"),
  other: rgb("c2410c"),
  chosen: rgb("b3127f"),
  reached: rgb("0a7c66"),
  mixed: rgb("a86a00"),
  failed: rgb("c22b2b"),
  guarded: rgb("7240c4"),
  removed: rgb("c22b2b"),
  components: list("33699e c2571a 2c8157 8a4fb0 a8323e 72703a 0e7c93 a04a83"),
  ramp: list("b8c9d6 86b3c4 5497ab 2f788f 215973 163a52 0c1f33"),
};

export const DARK: Palette = {
  dark: true,
  paper: rgb("14181f"),
  ink: rgb("e8ebf0"),
  floor: rgb("545b68"),
  edge: rgb("64738a"),
  plan: rgb("7fb0ff"),
  other: rgb("ff9d5c"),
  chosen: rgb("ff8ad2"),
  reached: rgb("46cfab"),
  mixed: rgb("f0b545"),
  failed: rgb("ff7d73"),
  guarded: rgb("c09cff"),
  removed: rgb("ff7d73"),
  components: list("7db4e8 f5a06a 6fd3a0 cf9df0 f58a94 cfcb7c 5ccbe2 f19ad0"),
  ramp: list("2d3f54 35617a 3f839a 55a5b4 82c4c4 b5dfd0 eef7df"),
};

export function css([r, g, b]: Rgb, alpha = 1): string {
  return alpha === 1 ? `rgb(${r}, ${g}, ${b})` : `rgba(${r}, ${g}, ${b}, ${alpha})`;
}

/** The ramp's colour at `t` of 0 to 1. */
export function along(ramp: Rgb[], t: number): Rgb {
  const place = Math.min(Math.max(t, 0), 1) * (ramp.length - 1);
  const i = Math.min(Math.floor(place), ramp.length - 2);
  const mix = (k: number) => Math.round(ramp[i]![k]! + (ramp[i + 1]![k]! - ramp[i]![k]!) * (place - i));
  return [mix(0), mix(1), mix(2)];
}
