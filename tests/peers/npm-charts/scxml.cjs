// Runs charts in SCION, an SCXML interpreter. Run it in the folder where SCION is installed.
//
// Each line of stdin is a chart with events, {"scxml": TEXT, "events": [NAME]}. For each it prints a
// line: the initial state and the state after each event, with the values of the fields.

const { createRequire } = require("node:module");
const readline = require("node:readline");
const load = createRequire(process.cwd() + "/");
const scion = load("@scion-scxml/scxml");

const DATA = 3;

const compiled = (text) =>
  new Promise((resolve, reject) =>
    scion.documentStringToModel("chart", text, (error, model) =>
      error
        ? reject(error)
        : model.prepare((error, chart) => (error ? reject(error) : resolve(chart)), { console })
    )
  );

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { scxml, events } = JSON.parse(line);
    const chart = new scion.core.Statechart(await compiled(scxml), {});
    const standing = () => {
      const { agent, world } = chart.getSnapshot()[DATA];
      return { states: chart.getConfiguration(), agent, world };
    };
    chart.start();
    const way = [JSON.stringify(standing())];
    for (const name of events) {
      chart.gen({ name, data: {} });
      way.push(JSON.stringify(standing()));
    }
    console.log("[" + way.join(",") + "]");
  }
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
