// A run: its graph and its path, what it did, each decision, its files, its children.

import { get, onChange, runPath } from "./api.js";
import { Acts, isOver } from "./acts.js";
import { Decision } from "./decision.js";
import { Graph } from "./graph.js";
import { Diff, Question } from "./questions.js";
import { Story } from "./story.js";
import { visible } from "./markdown.js";
import { Failure, Rows, Status, html, pretty, price, took, useEffect, useLoaded, useRows, useState, useThrottled, when } from "./ui.js";

const LEVELS = ["decisions", "effects", "everything"];

export function RunPage({ run, go }) {
  const mine = (change) => change.type === "run" && (change.run_id === run || change.run_id.startsWith(`${run}.`));
  const details = useLoaded(() => get(runPath(run)), [run], mine);
  const graph = useLoaded(() => get(runPath(run, "/graph")), [run]);
  const [level, setLevel] = useState("decisions");
  const [at, setAt] = useState(null);
  const [line, setLine] = useState(null);
  const settled = useThrottled(at);
  const [latest, setLatest] = useState(0); // the last event that the feed named: its line need not wait for the details
  useEffect(() => onChange((change) => change.type === "run" && change.run_id === run && setLatest(change.seq)), [run]);
  if (details.error && !details.value) return html`<${Failure} error=${details.error} />`;
  if (!details.value) return html`<p class="quiet" role="status">Loading …</p>`;
  const { run: row, result } = details.value;
  const chosen = at ?? row.seq;
  const version = Math.max(row.seq, latest);
  const choose = (seq, chosenLine = null) => { setAt(seq); setLine(chosenLine); };
  return html`
    <h1>${row.skill} <span class="quiet mono">${row.run_id}</span></h1>
    <div class="row facts"><${Status} text=${row.display_status} />
      ${row.status === "running" && html`<span class="busy" role="status">${row.phase}</span>`}
      ${row.reason && html`<span>${visible(row.reason.split("\n")[0])}</span>`}
      <span class="quiet">started ${when(row.started)} · ${took(details.value.active)} active · ${(result.usage.input_tokens + result.usage.output_tokens).toLocaleString()} tokens ${price(row.cost)}</span></div>
    <div><${Failure} error=${details.error} />
    ${row.question && html`<${Question} key=${row.question.question.id} asked=${row.question} onDone=${details.again} />`}</div>
    <${Acts} details=${details.value} go=${go} onDone=${details.again} at=${at} graph=${graph.value} />
    <div class="columns">
      <section aria-label="What it did">
        <div class="tabs" role="tablist" aria-label="Level of detail">
          ${LEVELS.map((one) => html`<button role="tab" aria-selected=${level === one} onClick=${() => setLevel(one)}>${one}</button>`)}
        </div>
        <${Story} run=${run} seq=${version} level=${level} at=${settled} onChoose=${choose} />
        <label for="slider">The run at event ${chosen} of ${row.seq}</label>
        <input id="slider" type="range" min="1" max=${row.seq} value=${chosen} onInput=${(event) => choose(Number(event.target.value) === row.seq ? null : Number(event.target.value))} />
        <${Waterfall} run=${run} seq=${version} onChoose=${choose} />
      </section>
      <section aria-label="State">
        <div><${StateAt} run=${run} at=${settled ?? row.seq} graph=${graph.value} /></div>
        <div>${line && line.data.run && line.seq === at && html`<${Child} key=${line.data.run} run=${line.data.run} isOpen />`}</div>
        <${Decision} run=${run} at=${settled ?? row.seq} />
      </section>
    </div>
    <${Outcome} row=${row} result=${result} />
  `;
}

function Waterfall({ run, seq, onChoose }) {
  const load = async (query) => {
    const page = await get(runPath(run, "/spans"), query);
    return { total: page.total, start: page.start, rows: page.spans };
  };
  const rows = useRows(load, run, seq, (span) => !span.end);
  if (!rows.total) return html`<${Failure} error=${rows.error} />`;
  return html`<h2>Time</h2><div class="waterfall"><${Rows} rows=${rows} label="Model calls, ops, children and waits" height=${Math.min(300, 26 * rows.total + 4)} follow
    onChoose=${(span) => onChoose(span.seq)} draw=${(span, shown) => html`<${Bar} span=${span} shown=${shown} />`} /></div>`;
}

// The scale is that of the rows in view.
function Bar({ span, shown }) {
  const now = Date.now() * 1000;
  const start = Math.min(...shown.map((one) => one.start));
  const end = Math.max(start + 1, ...shown.map((one) => one.end || now));
  const percent = (ts) => (100 * (ts - start)) / (end - start);
  const width = Math.max(0.4, percent(span.end || now) - percent(span.start));
  return html`<span class="name" title="${span.type} ${span.name}${span.phase && ` in ${span.phase}`}">${span.type} ${{ model: span.phase, child: span.run }[span.type] || span.name}${span.status && span.status !== "ok" ? ` · ${span.status}` : ""}</span>
    <span class="track"><svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class=${span.type} x=${Math.min(99.6, percent(span.start))} width=${width} y="0" height="10" /></svg></span>
    <span class="took quiet">${span.end ? took(span.end - span.start) : "…"}</span>`;
}

function StateAt({ run, at, graph }) {
  const state = useLoaded(() => get(runPath(run, "/state"), { at }), [run, at]);
  if (!state.value) return html`<${Failure} error=${state.error} />`;
  const value = state.value;
  return html`<div>
    <div>${graph && html`<${Graph} graph=${graph} visits=${value.visits} taken=${value.taken} phase=${isOver(value.status) ? "" : value.phase} />`}</div>
    <dl><dt>Event</dt><dd>${value.seq}</dd><dt>Status</dt><dd><${Status} text=${value.status} /></dd>
      <dt>Phase</dt><dd>${value.phase}</dd><dt>Path</dt><dd>${value.path.length < total(value.visits) ? "… → " : ""}${value.path.join(" → ")}</dd>
      <dt>Tokens</dt><dd>${value.tokens.toLocaleString()}</dd></dl></div>`;
}

const total = ({ end = 0, ...visits }) => Object.values(visits).reduce((sum, one) => sum + one, 0);

function Outcome({ row, result }) {
  return html`<div>
    ${result.artifact && html`<h2>Result</h2><pre tabindex="0">${visible(pretty(result.artifact))}</pre>`}
    ${result.code && html`<p>${result.code}: ${visible(result.hint)}</p>`}
    ${result.warnings.length > 0 && html`<h2>Warnings</h2><ul>${result.warnings.map((one) => html`<li>${visible(one)}</li>`)}</ul>`}
    <div><${Files} run=${row.run_id} status=${row.status} /></div>
    <div><${Children} run=${row.run_id} /></div></div>`;
}

function Files({ run, status }) {
  const found = useLoaded(() => get(runPath(run, "/files")), [run, status]);
  const files = Object.entries(found.value || {});
  if (!files.length) return html`<${Failure} error=${found.error} />`;
  return html`<h2>Files</h2>${files.map(([path, change]) => html`<${ChangedFile} key=${path} run=${run} path=${path} change=${change} status=${status} />`)}`;
}

function ChangedFile({ run, path, change, status }) {
  const [isOpen, setOpen] = useState(false);
  const found = useLoaded(() => (isOpen ? get(runPath(run, "/file-diff"), { path }) : Promise.resolve(null)), [run, path, isOpen, status]);
  return html`<details onToggle=${(event) => setOpen(event.target.open)}><summary><code>${visible(path)}</code> ${change}</summary>
    <${Failure} error=${found.error} />
    ${found.value && html`<${Diff} text=${found.value.text} isDiff />${found.value.is_truncated && html`<p class="quiet">The diff is longer.</p>`}`}</details>`;
}

function Children({ run }) {
  const mine = (change) => change.type === "run" && change.run_id !== run && change.run_id.startsWith(`${run}.`);
  const found = useLoaded(() => get(runPath(run, "/children"), { limit: 200 }), [run], mine);
  const children = (found.value || []).filter((one) => one.parent === run);
  if (!children.length) return html`<${Failure} error=${found.error} />`;
  return html`<h2>Children</h2>${children.map((one) => html`<${Child} key=${one.run_id} run=${one.run_id} row=${one} />`)}`;
}

// A child in place: what it did, its decisions, and its own children.
function Child({ run, row, isOpen: begins = false }) {
  const [isOpen, setOpen] = useState(begins);
  const [at, setAt] = useState(null);
  const mine = (change) => change.type === "run" && change.run_id === run;
  const details = useLoaded(() => (isOpen ? get(runPath(run)) : Promise.resolve(null)), [run, isOpen], mine);
  const shown = details.value ? details.value.run : row;
  return html`<details class="card child" open=${begins} onToggle=${(event) => setOpen(event.target.open)}>
    <summary>${shown ? html`${shown.skill} <span class="mono">${run}</span> <${Status} text=${shown.display_status} />` : html`<span class="mono">${run}</span>`}</summary>
    <${Failure} error=${details.error} />
    ${details.value && html`<p><a href="/runs/${run}">Open this run</a></p>
      <${Story} run=${run} seq=${details.value.run.seq} level="effects" at=${at} onChoose=${setAt} height=${220} />
      <${Decision} run=${run} at=${at ?? details.value.run.seq} />
      <${Outcome} row=${details.value.run} result=${details.value.result} />`}
  </details>`;
}
