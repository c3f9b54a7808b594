// Parses diagrams with Mermaid. Run it in the folder where Mermaid is installed.
//
// Each line of stdin is a diagram, as a JSON string. For each it prints a line: the type of the
// diagram, or the error.

const { createRequire } = require("node:module");
const { pathToFileURL } = require("node:url");
const readline = require("node:readline");
const load = createRequire(process.cwd() + "/");
const { JSDOM } = load("jsdom");

(async () => {
  // Mermaid needs a DOM.
  globalThis.window = new JSDOM("<!DOCTYPE html>").window;
  globalThis.document = window.document;
  const package = load.resolve("mermaid/package.json");
  const main = createRequire(package)("./package.json").exports["."].import;
  const { default: mermaid } = await import(new URL(main, pathToFileURL(package)));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const read = await mermaid.parse(JSON.parse(line)).catch((error) => ({ wrong: String(error) }));
    console.log(JSON.stringify(read.wrong ?? read.diagramType));
  }
})();
