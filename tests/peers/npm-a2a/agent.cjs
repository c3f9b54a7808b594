// A test agent on the JavaScript SDK of A2A. Run it in the folder where the SDK is installed. The first
// word of a message selects the behaviour.
//
// It prints its port once it listens, and appends each request to the log as a line of JSON.

const { createRequire } = require("node:module");
const fs = require("node:fs");
const load = createRequire(process.cwd() + "/");
const express = load("express");
const { TaskState, Role } = load("@a2a-js/sdk");
const { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } = load("@a2a-js/sdk/server");
const { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } = load(
  "@a2a-js/sdk/server/express"
);

// The offered interfaces: a list such as JSONRPC/1.0,HTTP+JSON/1.0.
const [log, offered] = process.argv.slice(2);
const paths = { JSONRPC: "/rpc", "HTTP+JSON": "/rest" };

const note = (what) => fs.appendFileSync(log, JSON.stringify(what) + "\n");
const text = (value) => ({
  content: { $case: "text", value },
  metadata: undefined,
  filename: "",
  mediaType: "text/plain",
});
const message = (value, taskId, contextId) => ({
  role: Role.ROLE_AGENT,
  messageId: crypto.randomUUID(),
  parts: [text(value)],
  taskId,
  contextId,
  extensions: [],
  metadata: {},
  referenceTaskIds: [],
});

class Agent {
  constructor() {
    this.cancelled = new Set();
  }

  cancelTask = async (taskId) => {
    note({ event: "cancel", task: taskId });
    this.cancelled.add(taskId);
  };

  async execute({ userMessage, task, taskId, contextId }, bus) {
    const said = userMessage.parts.map((part) => part.content?.value ?? "").join("");
    note({ event: "message", text: said, task: task?.id ?? null, context: contextId });
    const [word, ...rest] = said.split(" ");
    if (word === "message") {
      bus.publish(AgentEvent.message(message(`heard ${rest.join(" ")}`, "", contextId)));
      return;
    }
    const status = (state, said) =>
      bus.publish(
        AgentEvent.statusUpdate({
          taskId,
          contextId,
          status: {
            state,
            timestamp: new Date().toISOString(),
            message: said ? message(said, taskId, contextId) : undefined,
          },
          metadata: {},
        })
      );
    const artifact = (value) =>
      bus.publish(
        AgentEvent.artifactUpdate({
          taskId,
          contextId,
          artifact: {
            artifactId: "a",
            name: "",
            description: "",
            parts: [text(value)],
            metadata: {},
            extensions: [],
          },
          append: false,
          lastChunk: true,
          metadata: {},
        })
      );
    if (!task) {
      const submitted = { state: TaskState.TASK_STATE_SUBMITTED, message: undefined };
      const history = [userMessage];
      bus.publish(
        AgentEvent.task({ id: taskId, contextId, status: submitted, artifacts: [], history, metadata: {} })
      );
    }
    status(TaskState.TASK_STATE_WORKING);
    if (task) {
      artifact(`painted it ${said}`);
    } else if (word === "ask") {
      return status(TaskState.TASK_STATE_INPUT_REQUIRED, "Which colour?");
    } else if (word === "fail") {
      return status(TaskState.TASK_STATE_FAILED, "out of paint");
    } else if (word === "wait") {
      while (!fs.existsSync(rest.join(" "))) {
        if (this.cancelled.has(taskId)) {
          return status(TaskState.TASK_STATE_CANCELED);
        }
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      artifact("waited");
    } else {
      artifact(`painted ${said}`);
    }
    status(TaskState.TASK_STATE_COMPLETED);
  }
}

// It exits when the process that started it closes its stdin.
process.stdin.on("end", () => process.exit(0)).resume();

const app = express();
const server = app.listen(0, "127.0.0.1", () => {
  const { port } = server.address();
  const card = {
    name: "painter",
    description: "paints",
    version: "1",
    supportedInterfaces: offered.split(",").map((offer) => {
      const [protocolBinding, protocolVersion] = offer.split("/");
      const url = `http://127.0.0.1:${port}${paths[protocolBinding]}`;
      return { url, protocolBinding, tenant: "", protocolVersion };
    }),
    provider: undefined,
    capabilities: { streaming: true, pushNotifications: false, extensions: [], extendedAgentCard: false },
    securitySchemes: {},
    securityRequirements: [],
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: [],
    documentationUrl: "",
    signatures: [],
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Agent());
  const legacyCompat = { enabled: true };
  const options = { requestHandler, userBuilder: UserBuilder.noAuthentication, legacyCompat };
  const agentCardProvider = requestHandler;
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider, legacyCompat }));
  app.use("/rpc", jsonRpcHandler(options));
  app.use("/rest", restHandler(options));
  console.log(port);
});
