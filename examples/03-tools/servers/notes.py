"""An MCP server that keeps notes as files. It needs nothing but Python's standard library."""

import json
import pathlib
import sys

FOLDER = pathlib.Path("notes")


def tool(name, description, properties, **annotations):
    schema = {
        "type": "object",
        "properties": {key: {"type": "string"} for key in properties},
        "required": properties,
        "additionalProperties": False,
    }
    return {"name": name, "description": description, "inputSchema": schema, "annotations": annotations}


TOOLS = [
    tool("write", "Writes a note.", ["name", "text"]),
    tool("read", "Reads a note.", ["name"], readOnlyHint=True),
    tool("delete", "Deletes a note.", ["name"], destructiveHint=True),
]


def call(name, arguments):
    note = FOLDER / pathlib.Path(arguments["name"]).name
    if name == "write":
        FOLDER.mkdir(exist_ok=True)
        note.write_text(arguments["text"])
        return f"wrote {note.name}"
    if name == "delete":
        note.unlink()
        return f"deleted {note.name}"
    return note.read_text()


def answer(method, params):
    if method == "initialize":
        info = {"name": "notes", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            text, is_error = call(params["name"], params["arguments"]), False
        except OSError as error:
            text, is_error = f"there is no such note: {error.strerror}", True
        return {"content": [{"type": "text", "text": text}], "isError": is_error}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request["method"], request.get("params") or {})
    outcome = {"result": result}
    if result is None:
        outcome = {"error": {"code": -32601, "message": f"no method {request['method']}"}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)
