// One model call: what was on offer, what was chosen and why, errors, tokens, cost, and the prompt with its sections.

import { get, runPath } from "./api.js";
import { visible } from "./markdown.js";
import { Command, Failure, html, price, shellQuote, useLoaded, useState } from "./ui.js";

const percent = (value) => `${Math.round(value * 1000) / 10} %`;

export function Decision({ run, at }) {
  const found = useLoaded(() => get(runPath(run, "/decision"), { at, messages: false }).catch((error) => {
    if (error.status === 404) return null;
    throw error;
  }), [run, at]);
  if (!found.value) return html`<div><${Failure} error=${found.error} /></div>`;
  const one = found.value;
  const used = one.usage ? one.usage.input_tokens + one.usage.output_tokens : null;
  // One element, and one for each part that may be absent: elements without a key keep their order only then.
  return html`<div><h2>Model call at event ${one.seq}</h2>
    <dl><dt>Model</dt><dd>${visible(one.model)}</dd>
      ${one.chosen && html`<dt>Decision</dt><dd>${visible(one.chosen)}${one.confidence !== null && html` <span class="quiet">confidence ${one.confidence}</span>`}</dd>`}
      ${one.reason && html`<dt>Reason</dt><dd>${visible(one.reason)}</dd>`}
      ${used !== null && html`<dt>Tokens</dt><dd>${one.usage.input_tokens.toLocaleString()} in, ${one.usage.output_tokens.toLocaleString()} out</dd>`}
      ${one.cost && html`<dt>Cost</dt><dd>${price(one.cost) || "price unknown"}${one.cost.calls > 1 ? ` · ${one.cost.calls} calls` : ""}</dd>`}
      ${one.retries > 0 && html`<dt>Retries</dt><dd>${one.retries}</dd>`}</dl>
    <div>${one.rejected.map((error) => html`<div class="error">Rejected at <code>${visible(error.path)}</code>: ${visible(error.message)} <span class="quiet">${error.rule}</span></div>`)}</div>
    <div>${one.exits.length > 0 && html`<${Exits} decision=${one} />`}</div>
    <div>${one.sections.length > 0 && html`<${Sections} sections=${one.sections} />`}</div>
    <${Prompt} key=${one.seq} run=${run} at=${one.seq} /></div>`;
}

function Exits({ decision }) {
  const hasScores = decision.probability !== null;
  return html`<div class="scroll"><table><caption>Candidates</caption><thead><tr><th>Candidate</th><th>Artifact</th><th>When</th>${hasScores && html`<th class="number">Score</th>`}</tr></thead><tbody>
    ${decision.exits.map((one) => html`<tr class=${one.label === decision.chosen ? "chosen" : ""}><td>${visible(one.label)}${one.label === decision.chosen && html` <strong>chosen</strong>`}</td><td>${one.type}</td><td>${visible(one.description)}</td>
      ${hasScores && html`<td class="number">${one.label === decision.chosen ? percent(decision.probability) : ""}</td>`}</tr>`)}</tbody></table></div>`;
}

function Sections({ sections }) {
  const largest = Math.max(1, ...sections.map((one) => one.tokens));
  return html`<div class="scroll"><table><caption>Size of the prompt</caption><thead><tr><th>Section</th><th class="number">Tokens</th><th>Share</th></tr></thead><tbody>
    ${sections.map((one) => html`<tr><td>${one.name}</td><td class="number">${one.tokens.toLocaleString()}${one.tokens < one.original_tokens ? ` of ${one.original_tokens.toLocaleString()}` : ""}</td><td><meter min="0" max=${largest} value=${one.tokens} aria-label=${one.name}></meter></td></tr>`)}</tbody></table></div>`;
}

function Prompt({ run, at }) {
  const [isOpen, setOpen] = useState(false);
  const found = useLoaded(() => (isOpen ? get(runPath(run, "/decision"), { at }) : Promise.resolve(null)), [run, at, isOpen]);
  return html`<details onToggle=${(event) => setOpen(event.target.open)}><summary>Prompt and answer at this event</summary>
    <${Failure} error=${found.error} />
    ${found.value && found.value.messages.map((message) => html`<h2>${message.role}</h2><pre tabindex="0">${visible(message.text)}</pre>`)}
    <${Command} text="reyn frame --run ${shellQuote(run)} --at ${at}" />
  </details>`;
}
