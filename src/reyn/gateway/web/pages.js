// The lists: inbox, runs, skills, usage; and the forms that start a run.

import { get, may, post } from "./api.js";
import { Graph } from "./graph.js";
import { Question } from "./questions.js";
import { ModelField, parsed } from "./acts.js";
import { visible } from "./markdown.js";
import { Action, Command, Failure, Status, ago, html, price, shellQuote, useLoaded, useState } from "./ui.js";

const anyRun = (change) => change.type === "run";

export function Inbox() {
  const found = useLoaded(() => get("/api/questions"), [], anyRun);
  const questions = found.value || [];
  return html`<h1>Inbox</h1><${Failure} error=${found.error} />
    ${found.value && !questions.length && html`<p class="empty"><strong>No open questions.</strong><br />Questions and approvals of runs appear here. <a href="/runs">Runs</a> lists everything else.</p>`}
    ${questions.map((asked) => html`<${Question} key="${asked.run_id} ${asked.question.id}" asked=${asked} onDone=${found.again} />`)}`;
}

const STATUSES = ["running", "waiting", "limited", "failed", "finished", "aborted", "cancelled"];

export function Runs({ go }) {
  const [filter, setFilter] = useState({ status: "", skill: "", search: "", top: true });
  const [pages, setPages] = useState([]);
  const query = { status: filter.status, skill: filter.skill || undefined, search: filter.search, top: filter.top, limit: 50, after: pages[pages.length - 1] };
  const found = useLoaded(() => get("/api/runs", query), [JSON.stringify(query)], anyRun);
  const change = (part) => { setPages([]); setFilter({ ...filter, ...part }); };
  const rows = found.value ? found.value.runs : [];
  return html`<h1>Runs</h1>
    <form class="row filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <span><label class="inline" for="status">Status</label>
      <select id="status" value=${filter.status} onChange=${(event) => change({ status: event.target.value })}>
        <option value="">all</option>${STATUSES.map((one) => html`<option value=${one}>${one}</option>`)}</select></span>
      <span><label class="inline" for="skill">Skill</label>
      <input id="skill" value=${filter.skill} onInput=${(event) => change({ skill: event.target.value.trim() })} /></span>
      <span><label class="inline" for="search">Search</label>
      <input id="search" type="search" value=${filter.search} onInput=${(event) => change({ search: event.target.value })} /></span>
      <label class="inline"><input type="checkbox" checked=${!filter.top} onChange=${(event) => change({ top: !event.target.checked })} /> with sub-runs</label>
    </form>
    <${Failure} error=${found.error} />
    ${rows.length > 0 && html`<div class="scroll"><table class="runs"><thead><tr><th>Run</th><th>Skill</th><th>Status</th><th>Updated</th><th class="number wide">Cost</th></tr></thead><tbody>
      ${rows.map((row) => html`<tr key=${row.run_id}><td><a href="/runs/${row.run_id}">${row.run_id}</a></td><td>${row.skill}</td>
        <td><${Status} text=${row.display_status} /> <span class="quiet">${row.status === "running" ? row.phase : visible((row.reason || "").split("\n")[0].slice(0, 80))}</span></td>
        <td class="quiet">${ago(row.updated)} ago</td><td class="number wide">${price(row.cost)}</td></tr>`)}
    </tbody></table></div>`}
    ${found.value && found.value.unindexed > 0 && html`<p class="quiet">${found.value.unindexed.toLocaleString()} older runs are not indexed yet. Search again to find them.</p>`}
    ${found.value && !rows.length && html`<p class="empty"><strong>No matching runs.</strong><br /><a href="/skills">Choose a skill to start one.</a></p>`}
    <div class="row">
      ${pages.length > 0 && html`<button onClick=${() => setPages(pages.slice(0, -1))}>Newer</button>`}
      ${found.value && found.value.next && html`<button onClick=${() => setPages([...pages, found.value.next])}>Older</button>`}
    </div>
    <${Command} text="reyn runs${filter.status ? ` --status ${filter.status}` : ""}${filter.skill ? ` --skill ${shellQuote(filter.skill)}` : ""}${filter.search ? ` --search ${shellQuote(filter.search)}` : ""}${filter.top ? " --top" : ""}" />`;
}

const SHELVES = ["local", "project", "stdlib"];

export function Skills() {
  const found = useLoaded(() => get("/api/skills"), []);
  const agents = useLoaded(() => get("/api/agents"), []);
  return html`<h1>Skills</h1><${Failure} error=${found.error} />
    ${SHELVES.map((shelf) => [shelf, (found.value || []).filter((one) => one.shelf === shelf)]).filter(([, all]) => all.length).map(([shelf, all]) => html`<h2>${shelf === "stdlib" ? "Standard library" : `Skills of ${shelf === "local" ? "this machine" : "the project"}`}</h2>
      <ul class="plain">${all.map((one) => html`<li><a href="/skills/${encodeURIComponent(one.name)}">${one.name}</a> <span class="quiet">${visible(one.description)}</span></li>`)}</ul>`)}
    <${Command} text="reyn skills" />
    <h2>Agents</h2><${Failure} error=${agents.error} />
    <ul class="plain">${(agents.value || []).map((one) => html`<li><a href="/agents/${encodeURIComponent(one.name)}">${one.name}</a> <span class="quiet">${visible(one.description)}</span>${one.error && html`<div class="error">${visible(one.error)}</div>`}</li>`)}</ul>
    <${Command} text="reyn agent list" />`;
}

export function SkillPage({ name, go }) {
  const found = useLoaded(() => get(`/api/skills/${encodeURIComponent(name)}`), [name]);
  const skill = found.value;
  if (!skill) return html`<h1>${name}</h1><${Failure} error=${found.error} />`;
  return html`<h1>${skill.name}</h1><p>${visible(skill.description)}</p>
    ${skill.graph && html`<${Graph} graph=${skill.graph} />`}
    ${skill.graph && html`<dl><dt>Input</dt><dd>${skill.input.join(" or ")}</dd><dt>Output</dt><dd>${skill.output}</dd><dt>Phases</dt><dd>${skill.phases.join(", ")}</dd></dl>`}
    <${Findings} findings=${skill.findings} />
    ${skill.graph && html`<${Permissions} name=${name} />`}
    ${skill.cases.length > 0 && html`<${Cases} name=${name} cases=${skill.cases} />`}
    ${may("start") && skill.graph && html`<${StartForm} skill=${skill} go=${go} />`}`;
}

const Findings = ({ findings }) => html`<h2>Findings</h2>
  ${findings.length ? html`<ul>${findings.map((one) => html`<li><code>${one.file}:${one.line}</code> <strong>${one.severity}</strong> ${one.code} ${visible(one.message)}${one.text && html`<pre class="source" tabindex="0"><span class="seq">${one.line}</span> ${visible(one.text)}</pre>`}${one.fix && html`<div class="quiet">${visible(one.fix)}</div>`}</li>`)}</ul>` : html`<p class="quiet">None.</p>`}`;

export function AgentPage({ name }) {
  const found = useLoaded(() => get(`/api/agents/${encodeURIComponent(name)}`), [name]);
  const agent = found.value;
  if (!agent) return html`<h1>${name}</h1><${Failure} error=${found.error} />`;
  const isBroken = agent.findings.some((one) => one.severity === "error");
  const lines = (label, all) => all.length > 0 && html`<dt>${label}</dt><dd><ul>${all.map((one) => html`<li>${visible(one)}</li>`)}</ul></dd>`;
  const budget = Object.entries(agent.budget).filter(([, value]) => value).map(([key, value]) => `${value.toLocaleString()} ${key}`).join(", ");
  return html`<h1>Agent ${visible(agent.name)}</h1><p>${visible(agent.description)}</p>
    ${may("start") && !isBroken && html`<p><a href="/chat?agent=${encodeURIComponent(name)}">Talk with it</a></p>`}
    <${Findings} findings=${agent.findings} />
    ${!isBroken && html`<dl><dt>Model</dt><dd>${visible(agent.model || "that of the project")}</dd><dt>Ops</dt><dd>${agent.ops.join(", ")}</dd>
      ${lines("Skills", agent.skills)}${lines("May ask", agent.agents)}<dt>Memory</dt><dd>${agent.memory}</dd>${budget && html`<dt>Budget of a conversation</dt><dd>${budget}</dd>`}</dl>
      ${agent.instructions && html`<h2>Instructions</h2><pre tabindex="0">${visible(agent.instructions)}</pre>`}
      <${Permissions} name="agent:${name}" />`}
    <${Command} text="reyn agent show ${shellQuote(name)}" />`;
}

function Permissions({ name }) {
  const found = useLoaded(() => get(`/api/skills/${encodeURIComponent(name)}/permissions`), [name]);
  const report = found.value;
  const why = (one) => visible([one.rule || (one.rules || []).join(", "), one.place, one.reason].filter(Boolean).join(" · "));
  return html`<h2>Permissions</h2><${Failure} error=${found.error} />
    ${report && html`<div class="scroll" tabindex="0"><table><thead><tr><th>Action</th><th>Target</th><th>Verdict</th><th>Why</th></tr></thead><tbody>
      ${report.zones.map((one) => html`<tr><td>${one.access} files</td><td><code>${visible(one.pattern)}</code></td><td>allow</td><td>${visible(one.place)}</td></tr>`)}
      ${report.requests.map((one) => html`<tr><td>request ${one.capability}</td><td><code>${visible(one.target)}</code></td><td>${one.effect}</td><td>${why(one)}</td></tr>`)}
      ${report.ops.map((one) => html`<tr><td>op ${one.kind}</td><td>${visible(one.phases.join(", "))}</td><td>${one.effect}</td><td>${why(one)}</td></tr>`)}
    </tbody></table></div>`}
    <${Command} text="reyn permissions explain ${shellQuote(name)}" />`;
}

function Cases({ name, cases }) {
  const [results, setResults] = useState({});
  const perform = (one) => () => post(`/api/skills/${encodeURIComponent(name)}/cases`, { case: one });
  const show = (report) => setResults((before) => ({ ...before, ...Object.fromEntries(report.cases.map((one) => [one.name, one])) }));
  return html`<h2>Cases</h2><ul>${cases.map((one) => html`<li key=${one}><code>${visible(one)}</code>${" "}
      ${may("start") && html`<${Action} label="Run" title="Run case ${one}" command="reyn test ${shellQuote(name)}" perform=${perform(one)} onDone=${show} />`}
      ${results[one] && html`<span role="status"> <strong>${results[one].problems.length ? "failed" : "passed"}</strong></span>${results[one].problems.map((problem) => html`<div class="mono">${visible(problem)}</div>`)}`}</li>`)}</ul>
    ${may("start") && html`<div class="row"><${Action} label="Run all cases" kind="main" command="reyn test ${shellQuote(name)}" perform=${perform(null)} onDone=${show} /></div>`}
    <${Command} text="reyn test ${shellQuote(name)}" />`;
}

function StartForm({ skill, go }) {
  const properties = skill.input_schema.properties || {};
  const example = Object.fromEntries(Object.keys(properties).map((name) => [name, ""]));
  const isText = skill.input.length === 1 && skill.input[0] === "user_message";
  const [text, setText] = useState(isText ? "" : JSON.stringify(example, null, 2));
  const [model, setModel] = useState("");
  const perform = () => post("/api/runs", { skill: skill.name, input: isText ? text : parsed(text), ...(model && { model }) });
  return html`<h2>Start a run</h2><form class="card" onSubmit=${(event) => event.preventDefault()}>
    <label for="input">${isText ? "Message" : `Input, ${skill.input.join(" or ")}, as JSON`}</label>
    <textarea id="input" class=${isText ? "" : "code"} rows="6" value=${text} onInput=${(event) => setText(event.target.value)}></textarea>
    <${ModelField} id="model" label="Model; empty for the project's" value=${model} onInput=${(event) => setModel(event.target.value)} />
    <div class="row"><${Action} label="Start" kind="main" perform=${perform} onDone=${(row) => go(`/runs/${row.run_id}`)} /></div>
    <${Command} text="reyn run ${shellQuote(skill.name)} ${shellQuote(text)}${model ? ` --model ${shellQuote(model)}` : ""}" /></form>`;
}

export function Usage() {
  const [by, setBy] = useState("day");
  const found = useLoaded(() => get("/api/usage", { by }), [by]);
  const rows = found.value ? found.value.rows : [];
  const tokens = (row) => row.input_tokens + row.output_tokens;
  const costs = (row) => Object.entries(row.costs).map(([currency, amount]) => `${(amount / 1e9).toFixed(4)} ${currency}`).join(", ");
  return html`<h1>Usage</h1>
    <div class="tabs" role="tablist" aria-label="Group by">${["day", "skill", "model", "run"].map((one) => html`<button role="tab" aria-selected=${by === one} onClick=${() => setBy(one)}>${one}</button>`)}</div>
    <${Failure} error=${found.error} />
    ${found.value && !rows.length && html`<p class="empty"><strong>No model call was charged.</strong><br />Calls appear here by day, skill, model and run.</p>`}
    ${rows.length > 0 && html`<${Bars} label="Tokens by ${by}" rows=${rows.slice(0, 60).map((row) => ({ name: row.name, value: tokens(row), of: 0 }))} /><div class="scroll"><table><thead><tr><th>${by}</th><th class="number">Calls</th><th class="number">Tokens</th><th class="number">Cost</th></tr></thead><tbody>
      ${rows.map((row) => html`<tr><td>${visible(row.name)}</td><td class="number">${row.calls}</td><td class="number">${tokens(row).toLocaleString()}</td>
        <td class="number">${costs(row)}</td></tr>`)}</tbody></table></div>`}
    ${found.value && found.value.budgets.length > 0 && html`<h2>Budgets of today</h2><${Bars} label="Budgets of today"
      rows=${found.value.budgets.map((one) => ({ name: `${one.limit} ${one.skill}`.trim(), value: one.used, of: one.cap }))} />`}
    <${Command} text="reyn usage --by ${by}" />`;
}

const ROW = 28, NAME = 190, WIDE = 420;

// A bar for each value. With a limit, `of`, the bar is its share, and it changes its colour near the limit.
function Bars({ label, rows }) {
  const largest = Math.max(1, ...rows.map((row) => row.of || row.value));
  const short = (text) => (text.length > 24 ? `${text.slice(0, 23)}…` : text);
  return html`<div class="chart" tabindex="0" role="img" aria-label="${label}: ${rows.map((row) => `${row.name} ${row.value.toLocaleString()}${row.of ? ` of ${row.of.toLocaleString()}` : ""}`).join(", ")}">
    <svg viewBox="0 0 ${NAME + WIDE + 190} ${rows.length * ROW + 4}" width=${NAME + WIDE + 190} height=${rows.length * ROW + 4} aria-hidden="true">
      ${rows.map((row, index) => {
        const limit = row.of || largest, y = index * ROW + 4;
        const length = Math.max(1, (WIDE * Math.min(row.value, limit)) / limit);
        const kind = row.of && row.value >= row.of ? "over" : row.of && row.value >= 0.8 * row.of ? "near" : "";
        return html`<g><text x="0" y=${y + 15}>${short(visible(row.name))}</text>
          ${row.of > 0 && html`<rect class="limit" x=${NAME} y=${y} width=${WIDE} height="20" rx="3" />`}
          <rect class="bar ${kind}" x=${NAME} y=${y} width=${length} height="20" rx="3" />
          <text x=${NAME + WIDE + 10} y=${y + 15}>${row.value.toLocaleString()}${row.of ? ` of ${row.of.toLocaleString()}` : ""}</text></g>`;
      })}
    </svg></div>`;
}
