// Builds the page: node build.mjs [folder], by default into sgm/inspector/static.
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "sgm", "inspector", "static");
const settings = { bundle: true, minify: true, charset: "utf8", legalComments: "none", target: "es2022", logLevel: "warning" };

await mkdir(out, { recursive: true });
await build({ ...settings, entryPoints: [join(here, "src", "main.ts")], format: "iife", outfile: join(out, "app.js") });
await build({ ...settings, entryPoints: [join(here, "src", "style", "app.css")], outfile: join(out, "app.css") });
await copyFile(join(here, "src", "index.html"), join(out, "index.html"));
