// Prices an order: JSON on stdin, JSON on stdout.
import { readFileSync } from "node:fs";

type Item = { name: string; price: number; count: number };
type Given = { input: string; arguments: { approve_from: number } };

const given: Given = JSON.parse(readFileSync(0, "utf8"));
const items: Item[] = JSON.parse(given.input);
const total: number = items.reduce((sum, item) => sum + item.price * item.count, 0);
console.error(`${items.length} items`); // stderr is the log

console.log(JSON.stringify({
  output: { total, items: items.map((item) => item.name) },
  state_updates: { "metadata.total": total },
  routing_key: total >= given.arguments.approve_from ? "approve" : "order",
}));
