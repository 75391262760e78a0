// Small parts that all pages use.

import { Component, html, useCallback, useEffect, useRef, useState } from "./preact.js";
import { connection, onChange } from "./api.js";

export { Component, html, useCallback, useEffect, useRef, useState };

export const ago = (microseconds) => {
  const seconds = Math.max(0, Date.now() / 1000 - microseconds / 1e6);
  for (const [name, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= size) return `${Math.floor(seconds / size)} ${name}`;
  return `${Math.floor(seconds)} s`;
};

export const took = (microseconds) => {
  const seconds = Math.max(0, microseconds) / 1e6;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
};

export const when = (microseconds) => new Date(microseconds / 1000).toLocaleString();
export const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
export const price = (cost) => (cost && cost.currency ? `${Number(cost.amount).toFixed(4)} ${cost.currency}` : "");

export const Status = ({ text }) => html`<span class="status ${String(text).split(" ")[0]}">${text}</span>`;

export const Failure = ({ error }) =>
  error && html`<div class="error" role="alert">
    <strong>${error.message}</strong>${error.code && html` <span class="quiet">${error.code}</span>`}
    ${error.hint && html`<div>${error.hint}</div>`}
    ${(error.findings || []).map((one) => html`<div class="mono">${one.file}:${one.line}: ${one.code} ${one.message}</div>`)}
  </div>`;

export const Command = ({ text }) => html`<code class="command">${text}</code>`;

const REST = 40; // the milliseconds between two loads of a value that changes all the time

// Loads a value, again when a dependency or something that `wants` accepts has changed: at once, and one load at a time.
export function useLoaded(load, dependencies, wants) {
  const [state, setState] = useState({ value: null, error: null });
  const latest = useRef(0);
  const again = useCallback(async () => {
    const number = ++latest.current;
    try {
      const value = await load();
      if (number === latest.current) setState({ value, error: null });
    } catch (error) {
      if (number === latest.current) setState((before) => ({ value: before.value, error }));
    }
  }, dependencies);
  useEffect(() => {
    let isBusy = false, isStale = false, timer = null;
    const run = async () => {
      isBusy = true;
      isStale = false;
      await again();
      timer = setTimeout(() => { isBusy = false; if (isStale) run(); }, REST);
    };
    run();
    if (!wants) return () => clearTimeout(timer);
    const stop = onChange((change) => {
      const isBack = change.type === "connection" && change.state === "live";
      if (!isBack && !wants(change)) return;
      if (isBusy) isStale = true;
      else run();
    });
    return () => { stop(); isStale = false; clearTimeout(timer); };
  }, dependencies);
  return { ...state, again };
}

// A button that performs a request, shows its error, and the command that does the same.
export function Action({ label, title, kind = "", command, perform, onDone, disabled }) {
  const [state, setState] = useState({ isBusy: false, error: null });
  const click = async () => {
    setState({ isBusy: true, error: null });
    try {
      const result = await perform();
      setState({ isBusy: false, error: null });
      if (onDone) onDone(result);
    } catch (error) {
      setState({ isBusy: false, error });
    }
  };
  return html`<span>
    <button class=${kind} title=${[title, command].filter(Boolean).join(": ")} disabled=${disabled || state.isBusy} onClick=${click}>${label}</button>
    <${Failure} error=${state.error} />
  </span>`;
}

export function Connection() {
  const [state, setState] = useState(connection.state);
  useEffect(() => onChange((change) => change.type === "connection" && setState(change.state)), []);
  return html`<span class="connection ${state === "live" ? "is-live" : ""}" role="status" aria-live="polite">${state}</span>`;
}

export const shellQuote = (text) => (/^[\w./:@=+-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);

// The last value, at most once in 80 ms, so that a slider does not send a request for each step.
export function useThrottled(value) {
  const [settled, setSettled] = useState(value);
  const timer = useRef(null);
  const latest = useRef(value);
  latest.current = value;
  useEffect(() => {
    if (timer.current === null && value !== settled)
      timer.current = setTimeout(() => { timer.current = null; setSettled(latest.current); }, 80);
  }, [value, settled]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return settled;
}

const PART = 100, MOST_KNOWN = 4000;

// Rows of a long list that are fetched in parts. First the end; after a new `version`, what is new; and what comes into view.
// A row that `isOpen` is fetched again when it is in view, because it changes.
export function useRows(load, key, version, isOpen) {
  const [, draw] = useState(0);
  const state = useRef({ key: null });
  if (state.current.key !== key)
    state.current = { key, total: 0, known: new Map(), stale: new Set(), asked: new Set(), isKnown: false, error: null, seen: null, wanted: null, isBusy: false };
  const own = state.current;
  own.fetch = async (query) => {
    try {
      const page = await load(query);
      page.rows.forEach((row, index) => { own.known.set(page.start + index, row); own.stale.delete(page.start + index); });
      own.total = Math.max(own.total, page.total);
      Object.assign(own, { isKnown: true, error: null });
      return page;
    } catch (error) {
      own.error = error;
      return null;
    } finally {
      if (state.current === own) draw((count) => count + 1);
    }
  };
  own.need = (first, end) => {
    for (let start = Math.floor(first / PART) * PART; start < end; start += PART) {
      let isWanted = false;
      for (let index = Math.max(first, start); index < Math.min(end, start + PART, own.total); index++)
        if (!own.known.has(index) || own.stale.has(index)) isWanted = true;
      if (!isWanted || own.asked.has(start)) continue;
      own.asked.add(start);
      own.fetch({ start, limit: PART }).then(() => own.asked.delete(start));
    }
    if (own.known.size > MOST_KNOWN)
      for (const index of [...own.known.keys()]) if (index < first - 1000 || index > end + 1000) own.known.delete(index);
  };
  useEffect(() => {
    own.wanted = version;
    const refresh = async () => {
      if (own.isBusy) return;
      own.isBusy = true;
      while (own.seen !== own.wanted && state.current === own) {
        const next = own.wanted;
        if (isOpen) for (const [index, row] of own.known) if (isOpen(row)) own.stale.add(index);
        await own.fetch({ start: own.isKnown ? own.total : -PART, limit: PART });
        own.seen = next;
      }
      own.isBusy = false;
    };
    refresh();
  }, [key, version]);
  return own;
}

// Only what is visible is in the page, so that ten thousand rows scroll like ten.
const LINE = 26;

export function Rows({ rows, label, chosen, onChoose, follow, draw, mark, height: most = 480 }) {
  const height = Math.min(most, Math.max(4, rows.total) * LINE + 2);
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const id = useRef(`rows-${Math.random().toString(36).slice(2)}`).current;
  const shownLines = Math.ceil(height / LINE);
  const first = Math.max(0, Math.min(Math.floor(top / LINE), rows.total - shownLines) - 5);
  const end = Math.min(rows.total, first + shownLines + 10);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = rows.total * LINE;
  }, [rows.total, follow, rows.key]);
  useEffect(() => {
    if (follow || chosen === null || chosen === undefined || chosen < 0 || !box.current) return;
    const y = chosen * LINE;
    if (y < box.current.scrollTop || y > box.current.scrollTop + height - 2 * LINE) box.current.scrollTop = y - height / 2;
  }, [chosen, follow, rows.key]);
  useEffect(() => { if (rows.isKnown) rows.need(first, end); });
  const choose = (index) => {
    const row = rows.known.get(index);
    if (row) onChoose(row);
    else rows.need(index, index + 1);
  };
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 }[event.key];
    if (!step || !rows.total) return;
    event.preventDefault();
    const at = chosen === null || chosen === undefined || chosen < 0 ? rows.total - 1 : chosen;
    const next = Math.min(rows.total - 1, Math.max(0, at + step));
    if (rows.known.has(next)) choose(next);
    else rows.fetch({ start: Math.max(0, next - 50), limit: PART }).then(() => choose(next));
  };
  const shown = [];
  for (let index = first; index < end; index++) if (rows.known.has(index)) shown.push(rows.known.get(index));
  return html`<div class="lines" ref=${box} tabindex="0" role="listbox" aria-label=${label} style=${{ height: `${height}px` }}
      aria-activedescendant=${chosen >= first && chosen < end ? `${id}-${chosen}` : undefined} onKeyDown=${move}
      onScroll=${(event) => setTop(event.target.scrollTop)}>
    <div class="space" style=${{ height: `${rows.total * LINE}px` }}>
      ${Array.from({ length: Math.max(0, end - first) }, (_, offset) => first + offset).map((index) => {
        const row = rows.known.get(index);
        return html`<div key=${index} id="${id}-${index}" role="option" aria-selected=${index === chosen}
            class="line ${index === chosen ? "chosen" : ""} ${row && mark ? mark(row) : ""}"
            style=${{ top: `${index * LINE}px` }} onClick=${() => choose(index)}>${row ? draw(row, shown) : html`<span class="quiet">…</span>`}</div>`;
      })}
    </div>
  </div>`;
}
