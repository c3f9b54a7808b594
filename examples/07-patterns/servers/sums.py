"""An MCP server that adds. It needs nothing but Python's standard library."""

import json
import sys

WHOLE = {"type": "string", "pattern": "^[0-9]+$"}
SCHEMA = {"type": "object", "properties": {"a": WHOLE, "b": WHOLE}, "required": ["a", "b"]}
ADD = {"name": "add", "description": "Adds.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}


def answer(method, params):
    if method == "initialize":
        info = {"name": "sums", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [ADD]}
    if method == "tools/call":
        total = int(params["arguments"]["a"]) + int(params["arguments"]["b"])
        return {"content": [{"type": "text", "text": str(total)}]}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params") or {})
        outcome = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)
