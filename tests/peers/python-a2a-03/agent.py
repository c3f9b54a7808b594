"""An agent on the Python SDK of A2A 0.3. It writes its answer in pieces.

It prints its port when it listens, and writes down what it was asked, a line of JSON each. It starts
when the file that the message names is there, so that a client can look at the task before that.
"""

import argparse
import asyncio
import json
import os
import pathlib
import socket
import sys
import threading

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_task


def note(log, **what):
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


class Handler(DefaultRequestHandler):
    def __init__(self, log, **more):
        super().__init__(**more)
        self.log = log

    async def on_get_task(self, params, context=None):
        note(self.log, event="get")
        return await super().on_get_task(params, context)

    async def on_resubscribe_to_task(self, params, context=None):
        note(self.log, event="resubscribe")
        async for event in super().on_resubscribe_to_task(params, context):
            yield event


class Agent(AgentExecutor):
    def __init__(self, log):
        self.log = log

    async def execute(self, context, event_queue):
        text = context.get_user_input()
        note(self.log, event="message", text=text)
        task = new_task(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        while not pathlib.Path(text).exists():
            await asyncio.sleep(0.02)
        for number, piece in enumerate(["one ", "two ", "three"]):
            await updater.add_artifact(
                [Part(root=TextPart(text=piece))],
                artifact_id="a",
                append=number > 0,
                last_chunk=number == 2,
            )
            await asyncio.sleep(0.05)
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    args = parser.parse_args()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    port = listener.getsockname()[1]
    card = AgentCard(
        name="painter",
        description="paints",
        version="1",
        url=f"http://127.0.0.1:{port}/",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="paint", name="paint", description="paints", tags=["art"])],
    )
    handler = Handler(
        args.log, agent_executor=Agent(args.log), task_store=InMemoryTaskStore()
    )
    app = A2AStarletteApplication(agent_card=card, http_handler=handler).build()
    config = uvicorn.Config(app, log_level="warning", lifespan="off")
    # It ends with whoever has started it.
    end = lambda: (sys.stdin.read(), os._exit(0))
    threading.Thread(target=end, daemon=True).start()
    print(port, flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
