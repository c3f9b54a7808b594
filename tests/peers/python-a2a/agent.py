"""A test agent on the Python SDK of A2A. The first word of a message selects the behaviour.

It prints its port once it listens, and appends each request to the log as a line of JSON.
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
from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.helpers.proto_helpers import new_data_part, new_text_part, new_url_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Role,
)
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


class Agent(AgentExecutor):
    def __init__(self, log):
        self.log = log

    def note(self, **what):
        with open(self.log, "a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")

    async def execute(self, context, event_queue):
        text = context.get_user_input()
        task = context.current_task
        self.note(
            event="message",
            text=text,
            message=context.message.message_id,
            task=task.id if task else None,
            context=context.context_id,
            metadata=MessageToDict(context.message.metadata),
        )
        word, _, rest = text.partition(" ")
        if word == "die":
            os._exit(1)
        if word == "message":
            reply = new_text_message(f"heard {rest}", role=Role.ROLE_AGENT)
            await event_queue.enqueue_event(reply)
            return
        is_answer = task is not None
        if not is_answer:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        say = lambda said: updater.new_agent_message([new_text_part(said)])
        await updater.start_work()
        if is_answer:
            await updater.add_artifact([new_text_part(f"painted it {text}")])
            await updater.complete()
        elif word == "ask":
            await updater.requires_input(say("Which colour?"))
        elif word == "fail":
            await updater.failed(say("out of paint"))
        elif word == "reject":
            await updater.reject(say("not my work"))
        elif word == "auth":
            await updater.requires_auth(say("the museum wants a ticket"))
        elif word == "secretly":
            await updater.start_work(say("CANARY-OF-THE-PAINTER"))
            await updater.add_artifact([new_text_part(f"painted {rest}")])
            await updater.complete()
        elif word == "say":
            await updater.complete(say(f"said {rest}"))
        elif word == "data":
            await updater.add_artifact([new_data_part({"colour": "blue"})])
            await updater.complete()
        elif word == "file":
            part = new_url_part("https://h/a.png", media_type="image/png", filename="a.png")
            await updater.add_artifact([new_text_part("painted"), part])
            await updater.complete()
        elif word == "stream":
            for number, piece in enumerate(["one ", "two ", "three"]):
                await updater.add_artifact(
                    [new_text_part(piece)],
                    artifact_id="a",
                    append=number > 0,
                    last_chunk=number == 2,
                )
                await asyncio.sleep(0.05)
            await updater.complete()
        elif word == "flood":
            while True:
                await updater.add_artifact([new_text_part("x" * 1000)], artifact_id="a")
                await asyncio.sleep(0)
        elif word == "wait":
            # Waits until the test creates the named file.
            while not pathlib.Path(rest).exists():
                await asyncio.sleep(0.02)
            await updater.add_artifact([new_text_part("waited")])
            await updater.complete()
        else:
            await updater.add_artifact([new_text_part(f"painted {text}")])
            await updater.complete()

    async def cancel(self, context, event_queue):
        self.note(event="cancel", task=context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class Guard:
    """Rejects requests without the token."""

    def __init__(self, app, header, value):
        self.app, self.header, self.value = app, header.lower().encode(), value.encode()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and dict(scope["headers"]).get(self.header) != self.value:
            refusal = JSONResponse({"error": "a token is needed"}, status_code=401)
            return await refusal(scope, receive, send)
        return await self.app(scope, receive, send)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--offer", action="append", required=True, help="JSONRPC/1.0")
    parser.add_argument("--card", choices=["sdk", "0.3"], default="sdk")
    parser.add_argument("--address", help="what the card says instead of where it is")
    parser.add_argument("--guard", help="HEADER=VALUE")
    parser.add_argument("--no-streaming", action="store_true")
    args = parser.parse_args()

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    port = listener.getsockname()[1]
    base = args.address or f"http://127.0.0.1:{port}"
    paths = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest", "GRPC": "/grpc"}
    offers = [offer.split("/") for offer in args.offer]
    skill = AgentSkill(id="paint", name="paint", description="paints", tags=["art"])
    card = AgentCard(
        name="painter",
        description="paints",
        version="1",
        supported_interfaces=[
            AgentInterface(url=base + paths[binding], protocol_binding=binding, protocol_version=version)
            for binding, version in offers
        ],
        capabilities=AgentCapabilities(streaming=not args.no_streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[skill],
    )
    handler = DefaultRequestHandler(
        agent_executor=Agent(args.log), task_store=InMemoryTaskStore(), agent_card=card
    )
    if args.card == "sdk":
        routes = create_agent_card_routes(card)
    else:
        old = {
            "protocolVersion": "0.3.0",
            "name": "painter",
            "description": "paints",
            "version": "1",
            "url": base + paths[offers[0][0]],
            "preferredTransport": offers[0][0],
            "capabilities": {"streaming": not args.no_streaming},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "paint", "name": "paint", "description": "paints", "tags": ["art"]}],
        }
        routes = [Route("/.well-known/agent-card.json", lambda _: JSONResponse(old))]
    routes += create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True)
    routes += create_rest_routes(handler, path_prefix="/rest", enable_v0_3_compat=True)
    app = Starlette(routes=routes)
    if args.guard:
        app = Guard(app, *args.guard.split("=", 1))
    config = uvicorn.Config(app, log_level="warning", lifespan="off")
    # It exits when the process that started it closes its stdin.
    end = lambda: (sys.stdin.read(), os._exit(0))
    threading.Thread(target=end, daemon=True).start()
    print(port, flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
