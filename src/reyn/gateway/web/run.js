// A run: its graph and its path, what it did, each decision, and what can be done about it.

import { get, may, post, runPath } from "./api.js";
import { Graph } from "./graph.js";
import { Diff, Question } from "./questions.js";
import { visible } from "./markdown.js";
import { Action, Command, Failure, Lines, Status, ago, html, pretty, price, shellQuote, took, useEffect, useLoaded, useRef, useState, when } from "./ui.js";

export function RunPage({ run, go }) {
  const mine = (change) => change.type === "run" && (change.run_id === run || change.run_id.startsWith(`${run}.`));
  const details = useLoaded(() => get(runPath(run)), [run], mine);
  const graph = useLoaded(() => get(runPath(run, "/graph")), [run]);
  const spans = useLoaded(() => get(runPath(run, "/spans")), [run], mine);
  const timeline = useTimeline(run, details.value ? details.value.run.seq : 0);
  const [level, setLevel] = useState("decisions");
  const [at, setAt] = useState(null);
  if (details.error && !details.value) return html`<${Failure} error=${details.error} />`;
  if (!details.value) return html`<p class="quiet" role="status">Loading …</p>`;
  const { run: row } = details.value;
  const chosen = at ?? row.seq;
  return html`
    <h1>${row.skill} <span class="quiet mono">${row.run_id}</span></h1>
    <div class="row"><${Status} text=${row.display_status} />
      ${row.status === "running" && html`<span class="busy" role="status">${row.phase}</span>`}
      ${row.reason && html`<span>${visible(row.reason.split("\n")[0])}</span>`}
      <span class="quiet">started ${when(row.started)} · ${took(details.value.active)} active · ${(details.value.result.usage.input_tokens + details.value.result.usage.output_tokens).toLocaleString()} tokens ${price(row.cost)}</span></div>
    <${Failure} error=${details.error} />
    ${row.question && html`<${Question} asked=${row.question} onDone=${details.again} />`}
    <${Acts} details=${details.value} go=${go} onDone=${details.again} at=${at} graph=${graph.value} />
    <div class="columns">
      <section aria-label="What it did">
        <div class="tabs" role="tablist" aria-label="Level of detail">
          ${["decisions", "effects", "everything"].map((one) => html`<button role="tab" aria-selected=${level === one} onClick=${() => setLevel(one)}>${one}</button>`)}
        </div>
        <${EventLines} run=${run} timeline=${timeline} level=${level} last=${row.seq} chosen=${chosen} onChoose=${setAt} follow=${at === null} />
        <label for="slider">The run at event ${chosen} of ${row.seq}</label>
        <input id="slider" type="range" min="1" max=${row.seq} value=${chosen} onInput=${(event) => setAt(Number(event.target.value) === row.seq ? null : Number(event.target.value))} />
        <${Waterfall} spans=${spans.value || []} onChoose=${setAt} />
      </section>
      <section aria-label="State">
        <${StateAt} run=${run} at=${chosen} graph=${graph.value} />
        <${Decision} run=${run} at=${chosen} />
      </section>
    </div>
    <${Outcome} details=${details.value} />
  `;
}

// The lines so far; only new ones are fetched.
function useTimeline(run, seq) {
  const [lines, setLines] = useState([]);
  const state = useRef({ run, after: 0 });
  useEffect(() => {
    if (state.current.run !== run) {
      state.current = { run, after: 0 };
      setLines([]);
    }
    if (seq <= state.current.after) return;
    const own = state.current;
    get(runPath(run, "/timeline"), { after: own.after }).then((found) => {
      if (state.current !== own) return;
      own.after = Math.max(own.after, seq, ...found.map((line) => line.seq));
      setLines((before) => [...before, ...found.filter((line) => !before.length || line.seq > before[before.length - 1].seq)]);
    }, () => {});
  }, [run, seq]);
  return lines;
}

function EventLines({ run, timeline, level, last, chosen, onChoose, follow }) {
  const events = useLoaded(() => (level === "everything" ? get(runPath(run, "/events"), { limit: 5000 }) : []), [run, level, level === "everything" ? last : 0]);
  const lines = level === "everything"
    ? (events.value || []).map((event) => ({ seq: event.seq, text: `${event.kind}  ${JSON.stringify(event.data).slice(0, 200)}`, level: 0 }))
    : timeline.filter((line) => level === "effects" || line.is_decision).map((line) => ({ ...line, text: visible(line.text), warning: line.is_warning }));
  return html`<${Lines} lines=${lines} chosen=${nearest(lines, chosen)} onChoose=${onChoose} follow=${follow} />`;
}

function nearest(lines, seq) {
  let found = 0;
  for (const line of lines) if (line.seq <= seq) found = line.seq;
  return found;
}

function Waterfall({ spans, onChoose }) {
  if (!spans.length) return null;
  const start = Math.min(...spans.map((span) => span.start));
  const end = Math.max(...spans.map((span) => span.end || Date.now() * 1000), start + 1);
  const percent = (ts) => (100 * (ts - start)) / (end - start);
  const shown = spans.slice(-300);
  return html`<h2>Time</h2><div class="waterfall" tabindex="0" role="region" aria-label="Model calls, ops, children and waits">
    ${shown.map((span) => {
      const ends = span.end || Date.now() * 1000;
      const width = Math.max(0.4, percent(ends) - percent(span.start));
      return html`<div class="span" key=${span.seq}>
        <a class="name" href="#event-${span.seq}" title="${span.type} ${span.name}" onClick=${(event) => { event.preventDefault(); onChoose(span.seq); }}>${span.type} ${span.name}${span.status && span.status !== "ok" ? ` · ${span.status}` : ""}</a>
        <div class="track"><svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class=${span.type} x=${Math.min(99.6, percent(span.start))} width=${width} y="0" height="10" /></svg></div>
        <span class="took quiet">${span.end ? took(span.end - span.start) : "…"}</span></div>`;
    })}
    ${spans.length > shown.length && html`<p class="quiet">The last ${shown.length} of ${spans.length}.</p>`}
  </div>`;
}

function StateAt({ run, at, graph }) {
  const state = useLoaded(() => get(runPath(run, "/state"), { at }), [run, at]);
  if (!state.value) return html`<${Failure} error=${state.error} />`;
  const value = state.value;
  return html`
    ${graph && html`<${Graph} graph=${graph} path=${value.path} phase=${value.phase} />`}
    <dl><dt>Event</dt><dd>${value.seq}</dd><dt>Status</dt><dd><${Status} text=${value.status} /></dd>
      <dt>Phase</dt><dd>${value.phase}</dd><dt>Path</dt><dd>${value.path.join(" → ")}</dd>
      <dt>Tokens</dt><dd>${value.tokens.toLocaleString()}</dd></dl>`;
}

function Decision({ run, at }) {
  const [isOpen, setOpen] = useState(false);
  const found = useLoaded(() => (isOpen ? get(runPath(run, "/decision"), { at }) : Promise.resolve(null)), [run, at, isOpen]);
  const largest = found.value ? Math.max(1, ...found.value.sections.map((one) => one.tokens)) : 1;
  return html`<details onToggle=${(event) => setOpen(event.target.open)}><summary>Prompt and answer at this event</summary>
    <${Failure} error=${found.error} />
    ${found.value && found.value.messages.map((message) => html`<h2>${message.role}</h2><pre tabindex="0">${visible(message.text)}</pre>`)}
    ${found.value && found.value.sections.length > 0 && html`<h2>Size of the prompt</h2><div class="scroll"><table><thead><tr><th>Section</th><th class="number">Tokens</th><th>Share</th></tr></thead><tbody>
      ${found.value.sections.map((one) => html`<tr><td>${one.name}</td><td class="number">${one.tokens}${one.tokens < one.original_tokens ? ` of ${one.original_tokens}` : ""}</td><td><meter min="0" max=${largest} value=${one.tokens} aria-label=${one.name}></meter></td></tr>`)}</tbody></table></div>`}
    <${Command} text="reyn frame --run ${shellQuote(run)} --at ${at}" />
  </details>`;
}

function Outcome({ details }) {
  const files = Object.entries(details.files);
  return html`
    ${details.result.artifact && html`<h2>Result</h2><pre tabindex="0">${visible(pretty(details.result.artifact))}</pre>`}
    ${details.result.code && html`<p>${details.result.code}: ${visible(details.result.hint)}</p>`}
    ${details.result.warnings.length > 0 && html`<h2>Warnings</h2><ul>${details.result.warnings.map((one) => html`<li>${visible(one)}</li>`)}</ul>`}
    ${files.length > 0 && html`<h2>Files</h2><ul>${files.map(([path, change]) => html`<li><code>${visible(path)}</code> ${change}</li>`)}</ul>`}
    ${details.children.length > 0 && html`<h2>Children</h2><ul>${details.children.map((one) => html`<li><a href="/runs/${one.run_id}">${one.run_id}</a> ${one.skill} <${Status} text=${one.display_status} /></li>`)}</ul>`}`;
}

function Acts({ details, go, onDone, at, graph }) {
  const { run: row } = details;
  const [fork, setFork] = useState(false);
  const name = shellQuote(row.run_id);
  const isOver = ["finished", "aborted", "cancelled"].includes(row.status);
  const next = row.next;
  if (!may("start")) return null;
  const open = (result) => go(`/runs/${result.run_id}`);
  return html`<div class="row">
    ${!isOver && html`<${Action} label="Cancel" kind="bad" command="reyn cancel ${name}" perform=${() => post(runPath(row.run_id, "/cancel"))} onDone=${onDone} />`}
    ${next && next.verb === "resume" && !next.limit && html`<${Action} label=${next.retry ? "Retry" : "Resume"} kind="main" command="reyn resume ${name}${next.retry ? " --retry" : ""}"
        perform=${() => post(runPath(row.run_id, "/resume"), { retry: next.retry, upgrade: next.upgrade })} onDone=${onDone} />`}
    ${next && next.limit && html`<${RaiseLimit} row=${row} next=${next} onDone=${onDone} />`}
    <button aria-expanded=${fork} onClick=${() => setFork(!fork)}>Fork …</button>
    <${Action} label="Run again" command="reyn rerun ${name}" perform=${() => post(runPath(row.run_id, "/rerun"))} onDone=${open} />
    <${Action} label="Verify" command="reyn verify ${name}" perform=${() => post(runPath(row.run_id, "/verify"))} onDone=${(report) => alert(`${report.events} events, ${report.blobs} blobs verified`)} />
    ${row.fork_of && html`<a href="/compare?a=${encodeURIComponent(row.fork_of)}&b=${encodeURIComponent(row.run_id)}">Compare with ${row.fork_of}</a>`}
    </div>
    ${fork && html`<${ForkForm} row=${row} at=${at} go=${go} graph=${graph} />`}`;
}

function RaiseLimit({ row, next, onDone }) {
  const [value, setValue] = useState(next.value || "");
  return html`<span class="row"><label class="inline" for="limit">${next.limit}</label>
    <input id="limit" inputmode="numeric" size="10" value=${value} onInput=${(event) => setValue(event.target.value)} />
    <${Action} label="Raise and resume" kind="main" command="reyn resume ${shellQuote(row.run_id)} --raise ${next.limit}=${value || "N"}"
      perform=${() => post(runPath(row.run_id, "/resume"), { raise_limits: { [next.limit]: Number(value) } })} onDone=${onDone} /></span>`;
}

function ForkForm({ row, at, go, graph }) {
  const [values, setValues] = useState({ at: at ?? row.seq, model: "", input: "", phase: "", instructions: "", answer: "" });
  const set = (name) => (event) => setValues({ ...values, [name]: event.target.value });
  const phases = graph ? graph.nodes.filter((node) => node.instructions) : [];
  const choose = (event) => setValues({ ...values, phase: event.target.value, instructions: (phases.find((node) => node.name === event.target.value) || { instructions: "" }).instructions });
  const recorded = async () => {
    const { messages } = await get(runPath(row.run_id, "/decision"), { at: values.at });
    const last = messages[messages.length - 1];
    setValues({ ...values, answer: last && last.role === "answer" ? pretty(parsed(last.text)) : "" });
  };
  const options = [
    ["--model", values.model && shellQuote(values.model)], ["--input", values.input && shellQuote(values.input)],
    ["--instructions", values.phase && `${shellQuote(values.phase)}=FILE`], ["--answer", values.answer && "FILE"]];
  const command = `reyn fork ${shellQuote(row.run_id)} --at ${values.at}${options.map(([name, value]) => (value ? ` ${name} ${value}` : "")).join("")}`;
  const perform = async () => {
    const body = { at: Number(values.at) };
    if (values.model) body.model = values.model;
    if (values.input) body.input = parsed(values.input);
    if (values.phase) body.instructions = { [values.phase]: values.instructions };
    if (values.answer) body.answer = decision(values.answer);
    return post(runPath(row.run_id, "/fork"), body);
  };
  return html`<form class="card" onSubmit=${(event) => event.preventDefault()}>
    <label for="fork-at">Continue from event</label><input id="fork-at" inputmode="numeric" value=${values.at} onInput=${set("at")} />
    <label for="fork-model">Another model</label><input id="fork-model" value=${values.model} onInput=${set("model")} />
    <label for="fork-input">Another input of the next phase, as JSON or text</label><textarea id="fork-input" class="code" value=${values.input} onInput=${set("input")}></textarea>
    <label for="fork-phase">Other instructions of phase</label>
    <select id="fork-phase" value=${values.phase} onChange=${choose}><option value="">none</option>${phases.map((node) => html`<option value=${node.name}>${node.name}</option>`)}</select>
    ${values.phase && html`<label for="fork-instructions">Instructions of ${values.phase}</label><textarea id="fork-instructions" rows="8" value=${values.instructions} onInput=${set("instructions")}></textarea>`}
    <label for="fork-answer">Your answer to the model call at this event, as JSON or text</label>
    <textarea id="fork-answer" class="code" rows="6" value=${values.answer} onInput=${set("answer")}></textarea>
    <div class="row"><${Action} label="Copy the recorded answer" perform=${recorded} /></div>
    <div class="row"><${Action} label="Fork" kind="main" perform=${perform} onDone=${(result) => go(`/compare?a=${encodeURIComponent(row.run_id)}&b=${encodeURIComponent(result.run_id)}`)} /></div>
    <${Command} text=${command} /></form>`;
}

// An answer is a JSON object or a text.
function decision(text) {
  const value = parsed(text);
  return value && typeof value === "object" && !Array.isArray(value) ? value : text;
}

export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export function ComparePage({ a, b }) {
  const wants = (change) => change.type === "run" && (change.run_id === a || change.run_id === b);
  const found = useLoaded(() => get(runPath(a, "/diff"), { other: b }), [a, b], wants);
  const report = found.value;
  return html`<h1>Compare</h1><${Failure} error=${found.error} />
    ${report && report.skill.length > 0 && html`<${Diff} text=${report.skill.join("\n")} isDiff />`}
    ${report && html`<p>${report.decisions} decision${report.decisions === 1 ? "" : "s"} in common. ${report.cause ? `They differ by: ${report.cause}${report.detail ? `, ${report.detail}` : ""}.` : "They are identical."}</p>`}
    <div class="pair">${[a, b].map((run) => html`<${Side} run=${run} first=${report ? (run === a ? report.in_a : report.in_b) : null} />`)}</div>
    <${Command} text="reyn diff ${shellQuote(a)} ${shellQuote(b)}" />`;
}

function Side({ run, first }) {
  const details = useLoaded(() => get(runPath(run)), [run], (change) => change.type === "run" && change.run_id === run);
  const timeline = useTimeline(run, details.value ? details.value.run.seq : 0);
  if (!details.value) return html`<section><${Failure} error=${details.error} /></section>`;
  const { run: row } = details.value;
  const lines = timeline.filter((line) => line.is_decision).map((line) => ({ ...line, text: visible(line.text), warning: line.is_warning }));
  return html`<section aria-label=${run}><h2><a href="/runs/${run}">${run}</a> <${Status} text=${row.display_status} /></h2>
    ${row.question && html`<${Question} asked=${row.question} onDone=${details.again} />`}
    <${Lines} lines=${lines} chosen=${first ? nearest(lines, first.seq) : 0} onChoose=${() => {}} />
    ${details.value.result.artifact && html`<pre tabindex="0">${visible(pretty(details.value.result.artifact))}</pre>`}
    <p class="quiet">${ago(row.updated)} ago</p></section>`;
}
