// What a client in TypeScript has of the types that openapi-typescript makes of
// api/openapi.json. The tests compile it; it does not run.
import type { components, operations, paths } from "./api";

type Schemas = components["schemas"];

const create: Schemas["SessionCreate"] = {
  key: "job-1",
  queue: 600_000,
  ttl: 3_600_000,
  limits: { memory: 256 * 1024 * 1024, wall: 60_000 },
};

const call: Schemas["CallCreate"] = { tool: "bash", input: { command: "echo hello" }, key: "1" };

export function text(c: Schemas["Call"]): string {
  const reason: unknown = c.metadata["reason"];
  return c.error ? `${c.error.code}: ${c.output}` : `${c.output} (${String(reason)})`;
}

export function rest(o: Schemas["Output"], e: Schemas["Event"], a: Schemas["Approval"]): number {
  return o.offset + (o.missing ?? 0) + e.type.length + (a.reply?.answer.length ?? 0);
}

export type Made = paths["/v1/sessions"]["post"]["responses"]["201"]["content"]["application/json"];
export type Streamed = operations["CreateCall"]["responses"]["200"]["content"]["text/event-stream"];

export const memory = (s: Made): number => s.limits.memory ?? 0;
export const ended = (e: Streamed): boolean => "status" in e && e.status === "completed";
export default [create, call];
