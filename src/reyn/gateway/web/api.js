// Requests to the API, and the one stream of changes that all tabs of a browser share.

let session = null;

export class Problem extends Error {
  constructor(document) {
    super(document.detail || document.title || "the request failed");
    Object.assign(this, { code: document.code || "", hint: document.hint || "", status: document.status, findings: document.findings || [] });
  }
}

export async function request(method, path, body) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (session && method !== "GET") headers["X-CSRF-Token"] = session.csrf;
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
  return session;
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
  const open = () => new Promise(() => {
    const source = new EventSource("/api/stream");
    source.addEventListener("ready", () => publish({ type: "connection", state: "live" }));
    source.addEventListener("change", (event) => publish(JSON.parse(event.data)));
    source.onerror = () => publish({ type: "connection", state: "reconnecting" });
  });
  if (navigator.locks && channel) {
    navigator.locks.request("reyn-stream", open);
    channel.postMessage({ type: "hello" });
  } else open();
}
