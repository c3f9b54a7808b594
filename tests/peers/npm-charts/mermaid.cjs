// Has Mermaid read diagrams. It is started in the folder where that is installed.
//
// Each line of its input is a diagram, as a text in JSON. For each it prints a line: the type of the
// diagram that Mermaid takes it for, or what is wrong with it.

const { createRequire } = require("node:module");
const { pathToFileURL } = require("node:url");
const readline = require("node:readline");
const load = createRequire(process.cwd() + "/");
const { JSDOM } = load("jsdom");

(async () => {
  // Mermaid wants to be in a browser.
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
