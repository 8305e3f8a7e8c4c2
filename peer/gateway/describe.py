"""What the gateway says about itself: OpenAPI for HTTP, AsyncAPI for the events, and a page to try it."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from peer.version import version

_AN: Final = {"type": "integer", "minimum": 0, "description": "A packet's place in the stream."}
_CONTENT: Final = {
    "xml": {"type": "string", "description": "The packet, decoded."},
    "base64": {"type": "string", "description": "Instead of `xml`, for a packet that is not text."},
    "filtered": {"const": False, "description": "The packet was passed unmatched: matching it would take too long."},
}
SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "packet": {"properties": {"an": _AN, **_CONTENT}, "required": ["type", "an"]},
    "omitted": {"properties": {"an": _AN, **_CONTENT}, "required": ["type", "an"]},
    "gap": {"properties": {"after": _AN, "until": _AN}, "required": ["type", "after", "until"]},
    "started": {"properties": {"position": _AN}, "required": ["type", "position"]},
    "switched": {
        "properties": {"position": _AN, "query": {"type": "string"}},
        "required": ["type", "position", "query"],
    },
    "error": {"properties": {"message": {"type": "string"}}, "required": ["type", "message"]},
}
MEANINGS: Final = {
    "packet": "The next packet that matches the query.",
    "omitted": "A packet that came too late for its place: packets behind it were sent before.",
    "gap": "The packets in (after, until] can't be had any more.",
    "started": "The stream begins after this position; a second one says that its numbers have begun again.",
    "switched": "From here on the new query holds.",
    "error": "What the client sent was refused, and why.",
}
_PARAMETERS: Final = (
    ("query", "XPath 1.0; empty for everything"),
    ("namespace", "P=URI binds a prefix of the query; repeatable"),
    ("after", "AN of the last packet received: resume behind it"),
    ("token", "instead of the Authorization header, which browsers can't set here"),
)


def _schema(kind: str) -> dict[str, Any]:
    found = SCHEMAS[kind]
    properties = {"type": {"const": kind}, **found["properties"]}
    return {"type": "object", "description": MEANINGS[kind]} | found | {"properties": properties}


def schemas() -> dict[str, Any]:
    return {kind: _schema(kind) for kind in SCHEMAS}


def openapi(stream: str) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "query", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in _PARAMETERS
    ]
    refused = {
        "description": "Refused.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/refusal"}}},
    }
    events = {"$ref": "#/components/schemas/event"}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"skymesh gateway: {stream}", "version": version()},
        "paths": {
            f"/v1/{stream}/events": {
                "get": {
                    "summary": "The stream as Server-Sent Events",
                    "parameters": [
                        *parameters,
                        {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"}},
                    ],
                    "responses": {
                        "200": {"description": "Events.", "content": {"text/event-stream": {"schema": events}}},
                        **dict.fromkeys(("400", "401", "429", "503"), refused),
                    },
                }
            },
            f"/v1/{stream}": {
                "get": {
                    "summary": "What is served here",
                    "responses": {"200": {"description": "Position, oldest AN, number of clients."}, "401": refused},
                }
            },
        },
        "components": {
            "schemas": {
                **schemas(),
                "event": {"oneOf": [{"$ref": f"#/components/schemas/{kind}"} for kind in SCHEMAS]},
                "refusal": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]},
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def asyncapi(stream: str) -> dict[str, Any]:
    channel = {"$ref": "#/channels/socket"}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": f"skymesh gateway: {stream}", "version": version()},
        "channels": {
            "socket": {
                "address": f"/v1/{stream}/socket",
                "messages": {
                    **{kind: {"payload": _schema(kind)} for kind in SCHEMAS},
                    "wanted": {
                        "summary": "Ask for another query.",
                        "payload": {
                            "type": "object",
                            "properties": {
                                "query": {"type": "string"},
                                "namespaces": {"type": "object", "additionalProperties": {"type": "string"}},
                            },
                            "required": ["query"],
                        },
                    },
                },
            }
        },
        "operations": {
            "events": {
                "action": "send",
                "channel": channel,
                "messages": [{"$ref": f"#/channels/socket/messages/{kind}"} for kind in SCHEMAS],
            },
            "change": {
                "action": "receive",
                "channel": channel,
                "messages": [{"$ref": "#/channels/socket/messages/wanted"}],
            },
        },
    }


PAGE_POLICY: Final = (
    b"default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
)


def page(stream: str) -> bytes:
    """A page that listens: the example of docs/gateway.md."""
    name = escape(stream, quote=True)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{name}</title>
<style>body {{ font: 16px sans-serif; margin: 2em }} input {{ width: 40em }} pre {{ background: #eee }}</style>
<h1>{name}</h1>
<form><input name="query" placeholder="XPath, such as //altitude > 300; empty for all"> <button>Apply</button></form>
<p><b id="count">0</b> packets, <b id="gaps">0</b> gaps <span id="problem"></span></p>
<pre id="last"></pre>
<script type="module">
import {{ connect }} from "/skymesh.js";
const show = (id, text) => {{ document.getElementById(id).textContent = text; }};
let packets = 0, gaps = 0;
const token = new URLSearchParams(location.search).get("token") ?? undefined;
const stream = connect(location.origin, "{name}", {{
  token,
  onPacket: packet => {{ show("count", ++packets); show("last", packet.xml ?? packet.base64); }},
  onSwitched: () => show("problem", ""),
  onGap: () => show("gaps", ++gaps),
  onError: error => show("problem", error.message),
}});
document.forms[0].addEventListener("submit", event => {{
  event.preventDefault();
  stream.changeQuery(event.target.query.value);
}});
</script>
</html>
""".encode()
