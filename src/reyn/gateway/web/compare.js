// Two runs side by side.

import { get, runPath } from "./api.js";
import { Story } from "./story.js";
import { Diff, Question } from "./questions.js";
import { visible } from "./markdown.js";
import { Command, Failure, Status, ago, html, pretty, shellQuote, useLoaded, useState } from "./ui.js";

export function ComparePage({ a, b }) {
  const wants = (change) => change.type === "run" && (change.run_id === a || change.run_id === b);
  const found = useLoaded(() => get(runPath(a, "/diff"), { other: b }), [a, b], wants);
  const report = found.value;
  return html`<h1>Compare</h1><${Failure} error=${found.error} />
    ${report && report.skill.length > 0 && html`<${Diff} text=${report.skill.join("\n")} isDiff />`}
    ${report && html`<p>${report.decisions} decision${report.decisions === 1 ? "" : "s"} in common. ${report.cause ? `They differ by: ${report.cause}${report.detail ? `, ${report.detail}` : ""}.` : "They are identical."}</p>`}
    <div class="pair">${[a, b].map((run) => html`<${Side} key=${run} run=${run} first=${report ? (run === a ? report.in_a : report.in_b) : null} />`)}</div>
    <${Command} text="reyn diff ${shellQuote(a)} ${shellQuote(b)}" />`;
}

function Side({ run, first }) {
  const details = useLoaded(() => get(runPath(run)), [run], (change) => change.type === "run" && change.run_id === run);
  const [at, setAt] = useState(null);
  if (!details.value) return html`<section><${Failure} error=${details.error} /></section>`;
  const { run: row } = details.value;
  return html`<section aria-label=${run}><h2><a href="/runs/${run}">${run}</a> <${Status} text=${row.display_status} /></h2>
    ${row.question && html`<${Question} asked=${row.question} onDone=${details.again} />`}
    <${Story} run=${run} seq=${row.seq} level="decisions" at=${at ?? (first ? first.seq : null)} onChoose=${setAt} />
    ${details.value.result.artifact && html`<pre tabindex="0">${visible(pretty(details.value.result.artifact))}</pre>`}
    <p class="quiet">${ago(row.updated)} ago</p></section>`;
}
