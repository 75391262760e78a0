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

// Loads a value, again when a dependency or something that `wants` accepts has changed.
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
    again();
    if (!wants) return undefined;
    let timer = null;
    const stop = onChange((change) => {
      const isBack = change.type === "connection" && change.state === "live";
      if ((isBack || wants(change)) && timer === null)
        timer = setTimeout(() => { timer = null; again(); }, 40);
    });
    return () => { stop(); clearTimeout(timer); };
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
    <button class=${kind} title=${title || command} disabled=${disabled || state.isBusy} onClick=${click}>${label}</button>
    <${Failure} error=${state.error} />
  </span>`;
}

export function Connection() {
  const [state, setState] = useState(connection.state);
  useEffect(() => onChange((change) => change.type === "connection" && setState(change.state)), []);
  const text = { live: "live", connecting: "connecting", reconnecting: "reconnecting" }[state];
  return html`<span class="quiet" role="status" aria-live="polite">${text}</span>`;
}

export const shellQuote = (text) => (/^[\w./:@=+-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);

// Only what is visible is in the page, so that ten thousand lines scroll like ten.
const LINE = 26;

export function Lines({ lines, chosen, onChoose, follow }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const height = 480;
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = lines.length * LINE;
  }, [lines.length, follow]);
  const first = Math.max(0, Math.floor(top / LINE) - 10);
  const shown = lines.slice(first, first + Math.ceil(height / LINE) + 20);
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = lines.findIndex((line) => line.seq === chosen);
    const next = Math.min(lines.length - 1, Math.max(0, (at < 0 ? lines.length - 1 : at) + step));
    if (lines[next]) {
      onChoose(lines[next].seq);
      const y = next * LINE;
      if (y < box.current.scrollTop || y > box.current.scrollTop + height - 2 * LINE) box.current.scrollTop = y - height / 2;
    }
  };
  return html`<div class="lines" ref=${box} tabindex="0" role="listbox" aria-label="Events"
      aria-activedescendant=${chosen ? `line-${chosen}` : undefined} onKeyDown=${move}
      onScroll=${(event) => setTop(event.target.scrollTop)}>
    <div class="space" style=${{ height: `${lines.length * LINE}px` }}>
      ${shown.map((line, index) => html`<div key=${line.seq} id="line-${line.seq}" role="option"
          aria-selected=${line.seq === chosen} class="line ${line.seq === chosen ? "chosen" : ""} ${line.warning ? "warning" : ""}"
          style=${{ top: `${(first + index) * LINE}px` }} onClick=${() => onChoose(line.seq)}>
        <span class="seq">${line.seq}</span>
        <span class="text" style=${{ paddingLeft: `${(line.level || 0) * 14}px` }}>${line.text}</span>
      </div>`)}
    </div>
  </div>`;
}
