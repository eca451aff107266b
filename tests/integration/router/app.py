"""A third-party server (uvicorn) with an application that echoes, streams and counts. Prints its port."""

from __future__ import annotations

import asyncio
import json
import socket

import uvicorn


async def read(receive) -> int:
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    return size


async def app(scope, receive, send) -> None:
    path = scope["path"]
    if path == "/events":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for number in range(5):
            await send({"type": "http.response.body", "body": b"data: %d\n\n" % number, "more_body": True})
            await asyncio.sleep(0.02)
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
        return
    size = await read(receive)
    if path.startswith("/large/"):
        length = int(path.removeprefix("/large/"))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(length).encode())]})
        for start in range(0, length, 100_000):
            await send({"type": "http.response.body", "body": b"y" * min(100_000, length - start), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    status = int(path.removeprefix("/status/")) if path.startswith("/status/") else 200
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    body = json.dumps({"method": scope["method"], "path": path, "size": size, "headers": headers}).encode()
    answer = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": answer})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


if __name__ == "__main__":
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.run(app, fd=listener.fileno(), log_level="critical", lifespan="off")
