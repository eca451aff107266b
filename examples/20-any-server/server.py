"""An HTTP server that answers with a greeting and its process id. It uses nothing of Fairway except $FAIRWAY_PORT."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Greeter(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        text = "ok\n" if self.path == "/health" else f"hello from process {os.getpid()}\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["FAIRWAY_PORT"])), Greeter)
print(f"listening on {server.server_address[1]}", flush=True)
server.serve_forever()
