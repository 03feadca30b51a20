// HTTP of Node.js for the tests: `http_node.js serve PORT LOG` and `http_node.js call PORT PLAN`.
//
// serve: GET /items 200, POST /items 201, /missing 404, /broken 503; LOG gets `METHOD PATH STATUS` for each request before
// its response is sent. call: PLAN is a JSON list of {close, requests: [[method, path, body size], ...]}, each a connection
// of its own, all at once; the same triples go to standard output.
"use strict";
const fs = require("fs");
const http = require("http");

function serve(port, log) {
  const file = fs.openSync(log, "w");
  const server = http.createServer((request, response) => {
    request.on("data", () => {});
    request.on("end", () => {
      const kind = request.url.split("/")[1];
      const status = { missing: 404, broken: 503 }[kind] || (request.method === "POST" ? 201 : 200);
      const body = `${request.method} ${request.url}\n`;
      fs.writeSync(file, `${request.method} ${request.url} ${status}\n`);
      response.writeHead(status, { "Content-Length": body.length });
      response.end(body);
    });
  });
  server.listen(port, "127.0.0.1");
  process.on("SIGTERM", () => process.exit(0));
}

function one(agent, port, close, [method, path, size]) {
  const headers = close ? { Connection: "close" } : {};
  if (size !== null) headers["Content-Length"] = size;
  return new Promise((resolve, reject) => {
    const request = http.request({ agent, host: "127.0.0.1", port, method, path, headers }, (response) => {
      response.resume();
      response.on("end", () => {
        process.stdout.write(`${method} ${path} ${response.statusCode}\n`);
        resolve();
      });
    });
    request.on("error", reject);
    request.end(size === null ? undefined : "x".repeat(size));
  });
}

async function connection(port, { close, requests }) {
  const agent = new http.Agent({ keepAlive: !close, maxSockets: 1 });
  for (const request of requests) await one(agent, port, close, request);
  agent.destroy();
}

const [mode, port, file] = process.argv.slice(2);
setTimeout(() => process.exit(9), 60000).unref();
if (mode === "serve") serve(Number(port), file);
else Promise.all(JSON.parse(fs.readFileSync(file)).map((each) => connection(Number(port), each)));
