// Requests to the API, and the one stream of changes that all tabs of a browser share.

let session = null;

// The half of the session that the cookie does not have: browsers send a cookie to every port of the host, and let only
// pages of this origin read this key. Tabs share it; without storage, this tab has it.
const STORED = "reyn-session-key";
let ownKey = "";

function sessionKey() {
  try {
    return localStorage.getItem(STORED) || ownKey;
  } catch {
    return ownKey;
  }
}

function storeKey(key) {
  ownKey = key;
  try {
    key ? localStorage.setItem(STORED, key) : localStorage.removeItem(STORED);
  } catch {
    // no storage
  }
}

const headersOf = (accepted) => ({ Accept: accepted, "X-Session-Key": sessionKey() });

export class Problem extends Error {
  constructor(document) {
    super(document.detail || document.title || "the request failed");
    Object.assign(this, { code: document.code || "", hint: document.hint || "", status: document.status, findings: document.findings || [] });
  }
}

export async function request(method, path, body) {
  const headers = headersOf("application/json");
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin" });
  } catch {
    throw new Problem({ detail: "The server cannot be reached.", hint: "Look whether `reyn serve` is running.", status: 0 });
  }
  if (response.status === 204) return null;
  const document = await response.json().catch(() => ({ detail: response.statusText, status: response.status }));
  if (!response.ok) throw new Problem(document);
  return document;
}

export const get = (path, query) => request("GET", path + asQuery(query));
export const post = (path, body = {}) => request("POST", path, body);

function asQuery(query) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query || {}))
    if (value !== undefined && value !== null && value !== "") pairs.append(name, value);
  const text = pairs.toString();
  return text ? `?${text}` : "";
}

export async function signIn(secret) {
  session = await request("POST", "/api/session", { secret });
  storeKey(session.key);
  return session;
}

export async function signOut() {
  await request("DELETE", "/api/session");
  storeKey("");
}

export async function loadSession() {
  session = await get("/api/session");
  return session;
}

export const may = (scope) => session && (session.scopes.includes(scope) || session.scopes.includes("admin"));
export const user = () => session;
export const runPath = (run, rest = "") => `/api/runs/${encodeURIComponent(run)}${rest}`;
export const chatPath = (run, rest = "") => `/api/conversations/${encodeURIComponent(run)}${rest}`;

// One tab holds the stream and passes on what arrives: browsers allow six connections per server.
const listeners = new Set();
const channel = "BroadcastChannel" in window ? new BroadcastChannel("reyn-changes") : null;
export const connection = { state: "connecting" };

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function deliver(change) {
  if (change.type === "connection") connection.state = change.state;
  for (const listener of [...listeners]) listener(change);
}

function publish(change) {
  deliver(change);
  if (channel) channel.postMessage(change);
}

export function startStream() {
  if (channel) channel.onmessage = (event) => deliver(event.data);
  if (navigator.locks && channel) navigator.locks.request("reyn-stream", followChanges);
  else followChanges();
}

// A stream by `fetch`, because an EventSource sends no headers. The feed has no past: after a break, pages read again.
async function followChanges() {
  for (let failures = 0; ; failures++) {
    let state = "reconnecting";
    try {
      const broken = new AbortController();
      const response = await fetch("/api/stream", { headers: headersOf("text/event-stream"), signal: broken.signal });
      if (response.status === 401) state = "signed out";
      if (response.ok)
        await readEvents(response.body.getReader(), broken, (name, data) => {
          if (name === "ready") { failures = 0; publish({ type: "connection", state: "live" }); }
          if (name === "change") publish(JSON.parse(data));
        });
    } catch {
      // broken; the loop goes on
    }
    publish({ type: "connection", state });
    await new Promise((resolve) => setTimeout(resolve, PAUSES[Math.min(failures, PAUSES.length - 1)] * (0.75 + Math.random() / 2)));
  }
}

const PAUSES = [250, 500, 1000, 2000, 5000, 10000];
const SILENCE = 40000; // the server sends something every 15 s

async function readEvents(reader, broken, take) {
  const decoder = new TextDecoder();
  let rest = "", name = "message", data = [];
  let timer = setTimeout(() => broken.abort(), SILENCE);
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      clearTimeout(timer);
      timer = setTimeout(() => broken.abort(), SILENCE);
      const lines = (rest + decoder.decode(part.value, { stream: true })).split("\n");
      rest = lines.pop();
      for (const line of lines.map((one) => one.replace(/\r$/, ""))) {
        if (line.startsWith("event:")) name = line.slice(6).trim();
        else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
        else if (!line) {
          if (data.length) take(name, data.join("\n"));
          name = "message";
          data = [];
        }
      }
    }
  } finally {
    clearTimeout(timer);
  }
}
