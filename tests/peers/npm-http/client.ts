// A client that openapi-typescript generates types for: submits, waits, lists and misses a task.
import createClient from "openapi-fetch";

import type { components, paths } from "./api.js";

declare const process: { argv: string[] };
const [url, token] = process.argv.slice(2);
const client = createClient<paths>({
  baseUrl: url,
  headers: { Authorization: `Bearer ${token}` },
});

function expect(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(what);
}

const submitted = await client.POST("/api/v1/tasks", {
  params: { query: { wait: "60s" }, header: { "Idempotency-Key": "typescript" } },
  body: { agent: "greeter", input: "Ada" },
});
expect(submitted.data !== undefined, JSON.stringify(submitted.error));
const task: components["schemas"]["Task"] = submitted.data;
expect(task.status === "completed" && task.result === "Hello, Ada.", JSON.stringify(task));

const listed = await client.GET("/api/v1/tasks", { params: { query: { limit: 10 } } });
expect(listed.data !== undefined, JSON.stringify(listed.error));
expect(listed.data.items.length === 1 && listed.data.items[0]?.id === task.id, "one task");

const missing = await client.GET("/api/v1/tasks/{task_id}", {
  params: { path: { task_id: "00000000-0000-4000-8000-000000000000" } },
});
const problem: components["schemas"]["Problem"] | undefined = missing.error;
expect(missing.response.status === 404 && problem?.code === "not_found", "a problem");
console.log("ok");
