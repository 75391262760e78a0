// What can be done about a run: cancel, resume, raise a limit, fork, run again, verify.

import { get, may, post, runPath } from "./api.js";
import { Action, Command, html, pretty, shellQuote, useLoaded, useState } from "./ui.js";

export const isOver = (status) => ["finished", "aborted", "cancelled"].includes(status);

// The name of a model. Those of the project are offered.
export function ModelField({ id, label, value, onInput }) {
  const found = useLoaded(() => get("/api/models").catch(() => null), []);
  const models = found.value ? found.value.models : [];
  return html`<div><label for=${id}>${label}</label>
    <input id=${id} list="${id}-names" autocomplete="off" value=${value} onInput=${onInput} />
    <datalist id="${id}-names">${models.map((one) => html`<option value=${one.name} />`)}</datalist></div>`;
}

export function Acts({ details, go, onDone, at, graph }) {
  const { run: row } = details;
  const [fork, setFork] = useState(false);
  const name = shellQuote(row.run_id);
  const next = row.next;
  if (!may("start")) return null;
  const open = (result) => go(`/runs/${result.run_id}`);
  return html`<div class="row">
    ${!isOver(row.status) && html`<${Action} label="Cancel" kind="bad" command="reyn cancel ${name}" perform=${() => post(runPath(row.run_id, "/cancel"))} onDone=${onDone} />`}
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
    <div class="fields">
      <div><label for="fork-at">Continue from event</label><input id="fork-at" inputmode="numeric" value=${values.at} onInput=${set("at")} /></div>
      <${ModelField} id="fork-model" label="Another model" value=${values.model} onInput=${set("model")} />
      <div><label for="fork-phase">Other instructions of phase</label>
        <select id="fork-phase" value=${values.phase} onChange=${choose}><option value="">none</option>${phases.map((node) => html`<option value=${node.name}>${node.name}</option>`)}</select></div></div>
    <label for="fork-input">Another input of the next phase, as JSON or text</label><textarea id="fork-input" class="code" value=${values.input} onInput=${set("input")}></textarea>
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
